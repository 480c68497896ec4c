/** Which reply is whose: pairs the commands of one connection with what the server says. */
import { RespFramer, type RespValue } from './resp.js'

/** A command with its arguments, the name first, as the client sent them. */
export type RespCommand = readonly Buffer[]

/** One frame from the server, and the command that it answers or helps to answer; a push answers none. */
interface RespReply<Sent> {
  readonly bytes: Buffer
  readonly to: Sent | undefined
  /** Whether the command is answered with this. */
  readonly isLast: boolean
}

interface Pending<Sent> {
  readonly sent: Sent
  readonly name: string
  /** Channels named. */
  readonly channels: number
  /** Confirmations still to come; not known before the first. */
  missing: number | undefined
}

/** Both answer with one confirmation per channel, which RESP3 sends as pushes. */
const SUBSCRIBING = new Set(['subscribe', 'psubscribe', 'ssubscribe'])
const UNSUBSCRIBING = new Set(['unsubscribe', 'punsubscribe', 'sunsubscribe'])
/** What a subscriber is sent unasked; the lengths tell a message from a reply that begins with the same word. */
const MESSAGES: Readonly<Record<string, number>> = { message: 3, smessage: 3, pmessage: 4 }
/** After these the server's bytes are no replies any more, or no RESP. */
const BEYOND = new Set(['sync', 'psync'])

/** The state of one connection. `Sent` is what the caller wants to know a command by. */
export class RespExchange<Sent> {
  readonly #requests = new RespFramer({ allowsInline: true })
  readonly #replies = new RespFramer()
  readonly #accept: (command: RespCommand) => Sent
  readonly #pending: Pending<Sent>[] = []
  readonly #channels = new Set<string>()
  #isMonitor = false

  /** @param accept Called with each command as it comes. */
  constructor(accept: (command: RespCommand) => Sent) {
    this.#accept = accept
  }

  /** Bytes from the client. */
  requests(chunk: Buffer): void {
    for (const { value } of this.#requests.push(chunk)) {
      const command = value.items.map(({ text }) => text)
      // Redis does not answer an empty line either.
      if (command.length === 0) continue
      const name = nameOf(command)
      const second = String(command[1]).toLowerCase()
      if (BEYOND.has(name) || (name === 'client' && second === 'reply')) {
        throw new Error(`${name} ${second} cannot be followed; take a TCP proxy that does not look inside`)
      }
      this.#pending.push({ sent: this.#accept(command), name, channels: command.length - 1, missing: undefined })
    }
  }

  /** Bytes from the server: the frames that they complete. */
  replies(chunk: Buffer): RespReply<Sent>[] {
    return this.#replies.push(chunk).map(({ bytes, value }) => ({ bytes, ...this.#pair(value) }))
  }

  #pair(value: RespValue): { readonly to: Sent | undefined; readonly isLast: boolean } {
    const kind = value.items[0]?.text.toString() ?? ''
    const pending = this.#pending[0]
    const isConfirmation = SUBSCRIBING.has(kind) || UNSUBSCRIBING.has(kind)
    if (isConfirmation && pending?.name === kind) return this.#confirm(pending, value)
    if (isConfirmation && (value.type === '>' || this.#channels.size > 0)) this.#note(value)
    else if (pending !== undefined && !this.#isPush(value, kind)) return this.#answer(pending)
    return { to: undefined, isLast: false }
  }

  #isPush({ type, items }: RespValue, kind: string): boolean {
    if (type === '>' || this.#isMonitor) return true
    return type === '*' && this.#channels.size > 0 && items.length === MESSAGES[kind]
  }

  #answer(pending: Pending<Sent>) {
    this.#pending.shift()
    if (pending.name === 'monitor') this.#isMonitor = true
    if (pending.name === 'reset') this.#channels.clear()
    return { to: pending.sent, isLast: true }
  }

  #confirm(pending: Pending<Sent>, value: RespValue) {
    // Without a channel it is about all there are, and about none of them once when there are none.
    pending.missing ??= pending.channels || Math.max(1, this.#countOf(pending.name))
    pending.missing -= 1
    this.#note(value)
    if (pending.missing === 0) this.#pending.shift()
    return { to: pending.sent, isLast: pending.missing === 0 }
  }

  #note({ items: [kind, channel] }: RespValue): void {
    const name = String(kind?.text)
    const key = `${familyOf(name)} ${channel?.text.toString('latin1')}`
    if (SUBSCRIBING.has(name)) this.#channels.add(key)
    else this.#channels.delete(key)
  }

  #countOf(name: string): number {
    return [...this.#channels].filter((key) => key.startsWith(`${familyOf(name)} `)).length
  }
}

/** The name of a command, in lower case. */
export function nameOf(command: RespCommand): string {
  return String(command[0]).toLowerCase()
}

/** `subscribe` for subscribe and unsubscribe, `psubscribe` for the patterns. */
function familyOf(name: string): string {
  return name.replace('unsubscribe', 'subscribe')
}
