import type { Socket } from 'node:net'

/** `requests` go from the client to the server, `replies` the other way. */
export type Direction = 'requests' | 'replies'

/** What is done to one direction of all connections. */
export interface LineState {
  held: boolean
  delayMs: number
}

/** Sees what passes through one connection; knows the protocol, which the proxy does not. */
export interface Tap {
  /** Sees what the client sent, before the server does. */
  requests(chunk: Buffer): void
  /** Says what of the server's bytes to pass on, and whether to cut the connection behind them. */
  replies(chunk: Buffer): { readonly passed: readonly Buffer[]; readonly cut: boolean }
}

interface ConnectionOptions {
  readonly client: Socket
  readonly server: Socket
  readonly lines: Readonly<Record<Direction, LineState>>
  readonly tap: Tap | undefined
}

/** One client's connection through a proxy, and the proxy's own to the server. */
export class ProxiedConnection {
  readonly #client: Socket
  readonly #server: Socket
  readonly #requests: Line
  readonly #replies: Line
  readonly #closed: (() => void)[] = []
  #isReset = false

  constructor({ client, server, lines, tap }: ConnectionOptions) {
    this.#client = client
    this.#server = server
    const reset = () => this.reset()
    this.#requests = new Line(client, server, lines.requests, reset)
    this.#replies = new Line(server, client, lines.replies, reset)
    client.on('data', (chunk) => {
      tap?.requests(chunk)
      this.#requests.pass(chunk)
    })
    server.on('data', (chunk) => {
      const { passed, cut } = tap?.replies(chunk) ?? { passed: [chunk], cut: false }
      for (const each of passed) this.#replies.pass(each)
      if (cut) this.#replies.passReset()
    })
    for (const socket of [client, server]) socket.on('close', () => this.#closeWhenBothAre())
  }

  onClosed(listener: () => void): void {
    this.#closed.push(listener)
  }

  /** Passes on what may pass by now. */
  pump(): void {
    this.#requests.pump()
    this.#replies.pump()
  }

  /** Resets both sides at once. */
  reset(): void {
    if (this.#isReset) return
    this.#isReset = true
    for (const line of [this.#requests, this.#replies]) line.drop()
    for (const socket of [this.#client, this.#server]) {
      // A socket that is ending can no longer be reset.
      if (socket.writableEnded || socket.connecting) socket.destroy()
      else socket.resetAndDestroy()
    }
  }

  #closeWhenBothAre(): void {
    if (!this.#client.closed || !this.#server.closed) return
    for (const listener of this.#closed.splice(0)) listener()
  }
}

/** Chunks, or the end of them, to be given to the other side when their time has come. */
type Item = { readonly dueAt: number } & (
  | { readonly kind: 'bytes'; readonly bytes: Buffer }
  | { readonly kind: 'end' }
  | { readonly kind: 'reset' }
)

/** One direction of one connection: all that happens in it arrives in order, or late, or not yet. */
class Line {
  readonly #from: Socket
  readonly #to: Socket
  readonly #state: LineState
  readonly #reset: () => void
  readonly #queue: Item[] = []
  #timer: NodeJS.Timeout | undefined
  #ended = false

  constructor(from: Socket, to: Socket, state: LineState, reset: () => void) {
    this.#from = from
    this.#to = to
    this.#state = state
    this.#reset = reset
    from.on('end', () => this.#pass({ kind: 'end', dueAt: this.#dueAt() }))
    // Hanging up travels as bytes do: through a silent network nobody hears of it.
    from.on('error', () => this.passReset())
    to.on('drain', () => from.resume())
  }

  pass(bytes: Buffer): void {
    this.#pass({ kind: 'bytes', bytes, dueAt: this.#dueAt() })
  }

  passReset(): void {
    this.#pass({ kind: 'reset', dueAt: this.#dueAt() })
  }

  drop(): void {
    this.#ended = true
    this.#queue.length = 0
    clearTimeout(this.#timer)
  }

  pump(): void {
    clearTimeout(this.#timer)
    while (!this.#state.held) {
      const waitMs = (this.#queue[0]?.dueAt ?? Number.POSITIVE_INFINITY) - performance.now()
      if (waitMs > 0) {
        if (Number.isFinite(waitMs)) this.#timer = setTimeout(() => this.pump(), Math.ceil(waitMs))
        return
      }
      const item = this.#queue.shift()
      if (item !== undefined) this.#deliver(item)
    }
  }

  #dueAt(): number {
    return performance.now() + this.#state.delayMs
  }

  #pass(item: Item): void {
    if (this.#ended) return
    // Nothing comes behind a reset.
    if (item.kind === 'reset') this.#ended = true
    this.#queue.push(item)
    this.pump()
  }

  #deliver(item: Item): void {
    if (item.kind === 'bytes') this.#write(item.bytes)
    else if (item.kind === 'end') this.#to.end()
    // What was passed on before must get there first.
    else if (this.#to.writable) this.#to.write('', this.#reset)
    else this.#reset()
  }

  #write(bytes: Buffer): void {
    if (this.#to.writable && !this.#to.write(bytes)) this.#from.pause()
  }
}
