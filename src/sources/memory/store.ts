import { DEFAULT_SETTINGS, ERRORS_KEPT, type NewMessage, type SharedSettings } from '../../driver.js'
import { type Room, sizeOf } from '../local/admission.js'
import { Fifo } from '../local/fifo.js'
import { SessionBook } from '../local/sessions.js'
import { Agenda } from './agenda.js'
import type { Clock } from './clock.js'
import { HintBoard } from './hint-board.js'
import { IdTable } from './id-table.js'
import { type EndState, fill, type Message, NEVER, notesOf, strip } from './message.js'
import { MessagePool } from './message-pool.js'
import { OrderedList } from './ordered-list.js'
import { ReadySet } from './ready-set.js'
import { SequenceLog } from './sequence-log.js'

/** How many outcomes are forgotten when one is added: more than one, so that old ones are caught up with. */
const OUTCOMES_PER_END = 4

/** What has become of all messages since the queue was made. */
export interface Totals {
  enqueued: number
  acked: number
  forwarded: number
  purged: number
  expired: number
  cancelled: number
  dropped: number
}

/**
 * One queue: where each message is, and the steps by which it moves.
 *
 * Every step leaves the queue whole: each message is in exactly one of ready, delayed, claimed, dead, or counted in
 * one total. What decides about a step (limits, tokens, attempts) lives in the files of the verbs.
 */
export class QueueStore implements Room {
  readonly ready = new ReadySet()
  /** By due instant; the first is promoted next. */
  readonly delayed = new OrderedList<Message>()
  /** By fence. */
  readonly claims = new SequenceLog<Message>()
  /** By the order in which they died. */
  readonly dead = new SequenceLog<Message>()
  readonly agenda = new Agenda()
  readonly hints = new HintBoard()
  readonly sessions = new SessionBook()
  readonly totals: Totals = { enqueued: 0, acked: 0, forwarded: 0, purged: 0, expired: 0, cancelled: 0, dropped: 0 }
  settings: SharedSettings = DEFAULT_SETTINGS
  readonly #named = new Set<string>()
  paused = false
  /** Bytes of all that is ready, delayed or claimed. */
  bytes = 0

  readonly #byId = new IdTable<Message>()
  readonly #pool = new MessagePool()
  /** Finished messages whose outcome is retained, in the order in which they ended. */
  readonly #outcomes = new Fifo<Message>()
  #arrivals = 0
  #latestArrivalAt = 0
  #fences = 0
  #deaths = 0

  constructor(
    readonly name: string,
    readonly clock: Clock,
  ) {}

  /** How many messages count against `maxLength`. */
  get length(): number {
    return this.ready.size + this.delayed.size + this.claims.size
  }

  get readyLength(): number {
    return this.ready.size
  }

  get readyBytes(): number {
    return this.ready.bytes
  }

  /** Whether an id is taken. */
  holds(id: string): boolean {
    return this.find(id) !== undefined
  }

  /** The message that holds an id: one that is in the queue, is dead, or has an outcome that is retained. */
  find(id: string): Message | undefined {
    const message = this.#byId.get(id)
    return message === undefined || !this.#outlived(message) ? message : undefined
  }

  /** The message of a claim, if that claim is live. */
  liveClaim(id: string, token: string): Message | undefined {
    const message = this.#byId.get(id)
    if (message === undefined || message.state !== 'claimed' || message.token !== token) return undefined
    return message.instant > this.clock.now ? message : undefined
  }

  /** The next instant at which something happens by itself, or `NEVER`. */
  get nextAt(): number {
    const due = this.delayed.first?.arrivedAt ?? NEVER
    const deadline = this.agenda.first?.instant ?? NEVER
    if (due === NEVER || deadline === NEVER) return due === NEVER ? deadline : due
    return Math.min(due, deadline)
  }

  /** Stores a new message; false if its id is not free. */
  add(source: NewMessage): boolean {
    const idHash = this.#byId.hashOf(source.id)
    const known = this.#byId.find(source.id, idHash)
    if (known !== undefined) {
      if (!this.#outlived(known)) return false
      this.#forgetOutcomesUpTo(known)
    }
    const size = sizeOf(source)
    const message = this.#pool.take()
    fill(message, source, idHash, size, this.clock.now)
    this.#startTtl(message)
    this.#byId.add(message)
    this.bytes += size
    this.totals.enqueued += 1
    if (source.delayMs > 0) this.delay(message, source.delayMs)
    else this.arrive(message)
    return true
  }

  /** Makes a message ready, as the last of its priority, and tells. */
  arrive(message: Message): void {
    if (this.#latestArrivalAt < this.clock.now) this.#latestArrivalAt = this.clock.now
    message.arrivedAt = this.#latestArrivalAt
    message.arrival = ++this.#arrivals
    this.giveBack(message)
  }

  /** Makes a message ready, in the place that it has, and tells. */
  giveBack(message: Message): void {
    this.putBack(message)
    this.hints.ready()
  }

  /** Makes a message ready, in the place that it has. Not told when time did it, which consumers have timers for. */
  putBack(message: Message): void {
    message.state = 'ready'
    this.ready.insert(message)
    if (message.expiresAt !== NEVER) this.agenda.schedule(message, message.expiresAt)
  }

  /** Makes a message wait; its place will be that of one that arrives when the delay is over. */
  delay(message: Message, delayMs: number): void {
    message.state = 'delayed'
    message.arrivedAt = this.clock.ahead + Math.ceil(delayMs)
    message.arrival = ++this.#arrivals
    this.delayed.insert(message)
    if (message.expiresAt !== NEVER) this.agenda.schedule(message, message.expiresAt)
    if (this.delayed.first === message || this.agenda.first === message) this.hints.ready()
  }

  /** Makes the first delayed message ready. */
  promote(): void {
    this.putBack(this.delayed.shift() as Message)
  }

  /** Claims a message that was just taken off the ready ones. */
  grant(message: Message, leaseMs: number, consumer: string, taken: boolean): void {
    const fence = ++this.#fences
    message.state = 'claimed'
    message.fence = fence
    message.token = `${fence}`
    message.deliveryCount += 1
    message.consumer = consumer
    message.taken = taken
    this.claims.push(fence, message)
    this.agenda.schedule(message, this.clock.ahead + leaseMs)
  }

  /** Takes a message off the place where it is. It must be put somewhere in the same step. */
  lift(message: Message): void {
    switch (message.state) {
      case 'claimed':
        this.claims.remove(message.fence)
        break
      case 'ready':
        this.ready.remove(message)
        break
      case 'delayed':
        this.delayed.remove(message)
        break
      default:
        this.dead.remove(notesOf(message).deathNumber)
        this.bytes += message.size
        return
    }
    this.agenda.remove(message)
  }

  /** Ends a lifted message. Its outcome is retained, and with it the id. */
  end(message: Message, state: EndState, result?: Uint8Array, reason?: string): void {
    this.bytes -= message.size
    strip(message)
    message.state = state
    message.endedAt = this.clock.now
    if (result !== undefined) notesOf(message).result = result
    if (reason !== undefined) notesOf(message).reason = reason
    this.#tellEnd(message)
    this.#outcomes.push(message)
    this.trimOutcomes(OUTCOMES_PER_END)
  }

  /** Makes a lifted message a dead letter. */
  bury(message: Message, reason: string, attempts: number): void {
    this.bytes -= message.size
    message.state = 'dead'
    const notes = notesOf(message)
    notes.reason = reason
    notes.attempts = attempts
    notes.deadAt = this.clock.now
    notes.deathNumber = ++this.#deaths
    this.dead.push(notes.deathNumber, message)
    this.#tellEnd(message)
  }

  /** Brings a dead letter back as if it were new. */
  revive(message: Message): void {
    this.lift(message)
    message.notes = undefined
    message.attempt = 1
    message.deliveryCount = 0
    message.cancelRequested = false
    this.#startTtl(message)
    this.arrive(message)
  }

  /** Ends a lifted message without a trace. Its id is free again. */
  forget(message: Message): void {
    this.bytes -= message.size
    strip(message)
    this.#tellEnd(message)
    this.#recycle(message)
  }

  /** Forgets outcomes that are too many or too old, at most `limit` of them. */
  trimOutcomes(limit: number): void {
    const { maxOutcomes } = this.settings.retention
    for (let left = limit; left > 0; left -= 1) {
      const oldest = this.#outcomes.first
      if (oldest === undefined || (this.#outcomes.size <= maxOutcomes && !this.#outlived(oldest))) return
      this.#forgetOldestOutcome()
    }
  }

  /** Replaces the shared settings; they hold from now on for all that is here. */
  applySettings(settings: SharedSettings): void {
    this.settings = settings
    this.ready.setAgeing(settings.ageing)
    this.trimOutcomes(Number.POSITIVE_INFINITY)
  }

  /** Takes over the settings that nobody has named before; the first who names one decides. */
  adoptSettings(proposed: Partial<SharedSettings>): void {
    const fresh = Object.entries(proposed).filter(([field]) => !this.#named.has(field))
    if (fresh.length === 0) return
    this.applySettings({ ...this.settings, ...Object.fromEntries(fresh) })
    this.nameSettings(proposed)
  }

  nameSettings(settings: Partial<SharedSettings>): void {
    for (const field of Object.keys(settings)) this.#named.add(field)
  }

  /** Moves the end of a claim's lease. */
  renew(message: Message, leaseMs: number): void {
    const instant = this.clock.ahead + leaseMs
    const nearer = instant < message.instant
    this.agenda.schedule(message, instant)
    if (nearer && this.agenda.first === message) this.hints.ready()
  }

  #outlived(message: Message): boolean {
    switch (message.state) {
      case 'done':
      case 'dead-elsewhere':
      case 'cancelled':
      case 'expired':
        return message.endedAt + this.settings.retention.outcomesMs <= this.clock.now
      default:
        return false
    }
  }

  /** Outcomes age in the order in which they ended, so all before an outlived one are outlived too. */
  #forgetOutcomesUpTo(message: Message): void {
    while (message.state !== 'forgotten') this.#forgetOldestOutcome()
  }

  #forgetOldestOutcome(): void {
    const oldest = this.#outcomes.shift() as Message
    oldest.notes = undefined
    this.#recycle(oldest)
  }

  #recycle(message: Message): void {
    message.state = 'forgotten'
    this.#byId.remove(message)
    this.#pool.give(message)
  }

  #startTtl(message: Message): void {
    if (message.ttlMs !== NEVER) message.expiresAt = this.clock.ahead + message.ttlMs
  }

  #tellEnd(message: Message): void {
    if (!message.watched) return
    message.watched = false
    this.hints.add({ kind: 'outcome', id: message.id })
  }
}

/** Remembers why an attempt failed. */
export function noteFailure(message: Message, reason: string): void {
  const { errors } = notesOf(message)
  errors.push(reason)
  if (errors.length > ERRORS_KEPT) errors.shift()
}
