import { type ClientHttp2Session, connect, createServer, type ServerHttp2Session } from 'node:http2'
import { type Answering, type Call, type Ends, passStream, passUnary, type Reply } from './etcd-proxied-call.js'
import { reservePort } from './free-ports.js'
import { type ReplyDrop, type ReplyDropOptions, ReplyDrops } from './reply-drops.js'

const HOST = '127.0.0.1'
const STREAMS = ['Watch/Watch', 'Lease/LeaseKeepAlive']

/** A call as the proxy saw it come from a client. */
export interface SeenCall {
  /** As in `KV/Txn`. */
  readonly method: string
  /** The message of a unary call; empty for streams. */
  readonly request: Buffer
  /** Counts connections from 1. */
  readonly connection: number
  /** What the server said, once it has; of unary calls that went well. */
  reply: Buffer | undefined
  /** Whether the call is still under way. */
  open: boolean
}

type CallFilter = (call: SeenCall) => boolean

/** How the client of a lost reply learns that it is lost. */
type Loss =
  /** Its connection is cut, and with it whatever else is under way there. */
  | 'cut'
  /** It is told UNAVAILABLE, as by a member that has lost its leader. */
  | 'refusal'
  /** It never does. */
  | 'silence'

const LOSSES: readonly Loss[] = ['cut', 'refusal', 'silence']
const UNAVAILABLE: Reply = { code: 14, text: 'etcdserver: request timed out' }

/** Says something else than the server. */
interface Lie {
  readonly match: CallFilter
  readonly code: number
  readonly message: string
  /** Whether the server has run the call all the same. */
  readonly ran: boolean
  times: number
}

interface LieOptions extends Partial<Pick<Lie, 'match' | 'ran' | 'times'>>, Pick<Lie, 'code' | 'message'> {}

/** Matches calls by method. */
export function ofMethod(...methods: readonly string[]): CallFilter {
  return ({ method }) => methods.includes(method)
}

/**
 * Starts a proxy in front of an etcd member, to lose single replies, to tell lies, and to see and count calls.
 *
 * @example
 * const proxy = await startEtcdProxy(server.port)
 * const { dropped } = proxy.dropReply({ match: ofMethod('KV/Txn') })
 * await dropped // The transaction has run, and its caller will not hear of it.
 */
export async function startEtcdProxy(targetPort: number): Promise<EtcdProxy> {
  const { port, release } = await reservePort()
  const proxy = new EtcdProxy(port, targetPort, release)
  await proxy.listen()
  return proxy
}

/** A proxy that knows the calls of etcd. */
export class EtcdProxy {
  readonly port: number
  readonly url: string
  /** All calls seen since the start, or since `forget`. */
  readonly calls: SeenCall[] = []
  readonly #targetPort: number
  readonly #release: () => Promise<void>
  readonly #server = createServer()
  readonly #sessions = new Set<ServerHttp2Session>()
  readonly #drops: ReadonlyMap<Loss, ReplyDrops<SeenCall>> = new Map(LOSSES.map((loss) => [loss, new ReplyDrops()]))
  readonly #lies = new Set<Lie>()
  readonly #messages = new Map<string, number>()
  #taken = 0

  constructor(port: number, targetPort: number, release: () => Promise<void>) {
    this.port = port
    this.url = `http://${HOST}:${port}`
    this.#targetPort = targetPort
    this.#release = release
    this.#server.on('session', (session) => this.#take(session))
    this.#server.on('sessionError', () => {})
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(this.port, HOST, resolve)
    })
  }

  /** How many connections are open now. */
  get connections(): number {
    return this.#sessions.size
  }

  /** How many calls there are, or of those that match. */
  count(match: CallFilter = () => true): number {
    return this.calls.filter(match).length
  }

  forget(): void {
    this.calls.length = 0
    this.#messages.clear()
  }

  /** How many messages the clients have sent in streams of a method: keepalives, watches asked for. */
  messagesIn(method: string): number {
    return this.#messages.get(method) ?? 0
  }

  /** Lets the server run a call and then loses its reply. */
  dropReply(options: ReplyDropOptions<SeenCall> & { readonly loss?: Loss } = {}): ReplyDrop<SeenCall> {
    const { loss = 'cut', ...more } = options
    return (this.#drops.get(loss) as ReplyDrops<SeenCall>).add(more)
  }

  /** The next so many calls that match are answered so; the server does not get them unless `ran` says so. */
  lie({ code, message, times = 1, match = () => true, ran = false }: LieOptions): {
    readonly left: number
    end(): void
  } {
    const lie: Lie = { code, message, times, match, ran }
    this.#lies.add(lie)
    return {
      get left() {
        return lie.times
      },
      end: () => void this.#lies.delete(lie),
    }
  }

  /** Cuts all connections of clients. */
  resetAll(): void {
    for (const session of [...this.#sessions]) session.destroy()
  }

  async stop(): Promise<void> {
    this.#server.close()
    this.resetAll()
    await this.#release()
  }

  #take(session: ServerHttp2Session): void {
    this.#taken += 1
    const connection = this.#taken
    this.#sessions.add(session)
    const upstream = connect(`http://${HOST}:${this.#targetPort}`)
    joinLives(session, upstream, () => this.#sessions.delete(session))
    session.on('stream', (stream, headers) => {
      const method = String(headers[':path']).replace('/etcdserverpb.', '')
      const ends = { stream, headers, upstream }
      if (STREAMS.includes(method)) this.#follow(ends, method, connection)
      else passUnary(ends, (request) => this.#answering(this.#see({ method, request, connection }), session))
    })
  }

  #see(call: Call): SeenCall {
    const seen = { ...call, reply: undefined, open: true }
    this.calls.push(seen)
    return seen
  }

  #follow(ends: Ends, method: string, connection: number): void {
    const seen = this.#see({ method, request: Buffer.alloc(0), connection })
    passStream(ends, {
      onMessage: () => this.#messages.set(method, this.messagesIn(method) + 1),
      onClose: () => {
        seen.open = false
      },
    })
  }

  /** What becomes of a call: whether the server gets it, and what its client hears. */
  #answering(seen: SeenCall, session: ServerHttp2Session): Answering {
    const sent = [...this.#drops].map(([loss, drops]) => ({ loss, drops, command: drops.send(seen) }))
    const lie = [...this.#lies].find(({ match, times }) => times > 0 && match(seen))
    if (lie !== undefined) lie.times -= 1
    return {
      isSent: lie?.ran !== false,
      gone: () => {
        seen.open = false
      },
      reply: (reply) => {
        seen.open = false
        if (reply.code === 0) seen.reply = reply.message
        const lost = sent.find(({ drops, command }) => drops.concerns(command))
        if (lost === undefined) return lie === undefined ? reply : { code: lie.code, text: lie.message }
        if (lost.loss === 'cut') session.destroy()
        lost.drops.finish(lost.command)
        return lost.loss === 'refusal' ? UNAVAILABLE : 'silence'
      },
    }
  }
}

/** When one of the two is gone, so is the other. */
function joinLives(session: ServerHttp2Session, upstream: ClientHttp2Session, done: () => void): void {
  session.on('error', () => {})
  upstream.on('error', () => {})
  session.on('close', () => {
    done()
    upstream.destroy()
  })
  upstream.on('close', () => session.destroy())
}
