/**
 * Messages that are to be stored in a queue, as part of a change.
 */
import type { EnqueueStatus, NewMessage } from '../../driver.js'
import { LimitError, type MillraceError } from '../../errors.js'
import { sizeOf } from '../local/admission.js'
import { type Arrivals, arrivalsOf, isBehindAll, nextArrivals, type StoredArrivals } from './arrivals.js'
import type { Change } from './change.js'
import type { Compare, Op } from './client.js'
import type { Desk } from './desk.js'
import { type Entry, encodeMessage, entryFor, entryRow, headerOf } from './entry.js'
import { arrivalText, fixed, INSTANT_DIGITS } from './keys.js'
import { rankOf } from './rank.js'
import { encode } from './record.js'
import { type Amount, Room } from './room.js'
import { modIs, put } from './txn.js'

export class Admission {
  /** Those that are stored. */
  readonly messages: NewMessage[] = []
  /** Something has arrived meanwhile: all of this has to be made again. */
  outdated = false
  readonly #desk: Desk
  readonly #arrivals: Arrivals
  readonly #change: Change
  readonly #known: ReadonlySet<string>
  readonly #seen = new Set<string>()
  readonly #ops: Op[] = []
  readonly #room: Room
  #dueAt = 0
  #single: Entry | undefined
  #ready = 0
  readonly #priorities = new Set<number>()
  #bytes = 0

  constructor(desk: Desk, change: Change, known: ReadonlySet<string>) {
    this.#desk = desk
    this.#arrivals = desk.arrivals
    this.#change = change
    this.#known = known
    this.#room = new Room(desk, change)
  }

  /** Adds a batch, all or nothing; an error where it does not fit. */
  async add(batch: readonly NewMessage[], leaving?: Amount): Promise<EnqueueStatus[] | MillraceError> {
    const error = this.#checkPayloads(batch)
    if (error) return error
    const fresh = new Set<NewMessage>()
    const ids = new Set<string>()
    for (const message of batch) {
      if (this.#known.has(message.id) || this.#seen.has(message.id) || ids.has(message.id)) continue
      ids.add(message.id)
      fresh.add(message)
    }
    const full = await this.#makeRoom([...fresh], ids, leaving)
    if (full) return full
    for (const message of fresh) this.#store(message)
    return batch.map((message) => (fresh.has(message) ? 'enqueued' : 'duplicate'))
  }

  /** Whether one of these has the id of what is dropped for those before it: it is free only after that. */
  drops(batch: readonly NewMessage[]): boolean {
    return this.#room.drops(batch)
  }

  /** Which ids are taken has to be read, and all of this made again. */
  get isUnread(): boolean {
    return this.#room.isUnread
  }

  /** What has to hold for all of this. */
  compare(): Compare[] {
    const { keys } = this.#desk
    return [modIs(keys.meta, this.#change.meta.mod), modIs(keys.arrivals, this.#arrivals.mod), ...this.#room.compare()]
  }

  ops(): Op[] {
    const { keys } = this.#desk
    const turn: StoredArrivals = {
      ...this.#next,
      ...(this.#ready > 0 && { r: this.#ready }),
      ...(this.#dueAt > 0 && { d: this.#dueAt }),
      ...(this.#single && this.messages.length === 1 && { e: entryRow(this.#single) }),
    }
    return [...this.#ops, put(keys.arrivals, encode(turn))]
  }

  /** It was stored at this revision. */
  applied(revision: number): void {
    const desk = this.#desk
    desk.noteArrived(arrivalsOf(this.#next, revision))
    if (this.#single && this.messages.length === 1) desk.head.noteReady(entryRow(this.#single), revision)
    if (desk.bound?.mod !== this.#arrivals.mod) return
    const { length, bytes } = desk.bound
    desk.bound = { mod: revision, length: length + this.messages.length, bytes: bytes + this.#bytes }
  }

  get #next(): StoredArrivals {
    return nextArrivals(this.#arrivals, this.#priorities)
  }

  async #makeRoom(
    fresh: readonly NewMessage[],
    ids: ReadonlySet<string>,
    leaving?: Amount,
  ): Promise<MillraceError | undefined> {
    if (fresh.length === 0) return undefined
    const bytes = fresh.reduce((sum, message) => sum + sizeOf(message), 0)
    const full = await this.#room.take({ length: fresh.length, bytes }, leaving, ids)
    this.outdated ||= this.#desk.arrivals.mod !== this.#arrivals.mod
    return full
  }

  #checkPayloads(batch: readonly NewMessage[]): MillraceError | undefined {
    const { maxPayloadBytes } = this.#desk.meta.settings.limits
    const large = batch.find(({ bytes }) => bytes.byteLength > maxPayloadBytes)
    return large && new LimitError('maxPayloadBytes', maxPayloadBytes, large.bytes.byteLength)
  }

  #store(message: NewMessage): void {
    const { keys } = this.#desk
    const { now, record, meta } = this.#change
    const arrival = arrivalText({ turn: this.#arrivals.turn + 1, index: this.messages.length })
    const delayed = message.delayMs > 0
    const dueAt = now + Math.ceil(message.delayMs)
    const entry = entryFor(message, delayed ? dueAt : now, arrival, now)
    const place = delayed ? `d/${fixed(dueAt, INSTANT_DIGITS)}${arrival}` : `r/${rankOf(entry, meta)}`
    this.#seen.add(message.id)
    this.messages.push(message)
    this.#bytes += entry.size
    record.count('enqueued')
    record.count('bytes', entry.size)
    record.count(delayed ? 'delayed' : 'ready')
    this.#ops.push(put(`${keys.messages}${message.id}`, encodeMessage(headerOf(message, now, place), message.bytes)))
    this.#ops.push(...this.#change.placed(entry, place))
    if (delayed) this.#due(dueAt)
    else {
      this.#ready += 1
      this.#single = entry
      this.#priorities.add(entry.priority)
      if (!isBehindAll(entry.priority, this.#arrivals, meta)) this.#change.comeInFront()
    }
    if (entry.expiresAt > 0) this.#due(entry.expiresAt)
  }

  #due(at: number): void {
    if (this.#dueAt === 0 || at < this.#dueAt) this.#dueAt = at
  }
}
