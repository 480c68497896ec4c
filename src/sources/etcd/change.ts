/**
 * A change of the queue in the making: what becomes of messages, as operations of a transaction and as numbers of the
 * session that makes it.
 */
import { DELIVERIES_PER_ATTEMPT, ERRORS_KEPT } from '../../driver.js'
import type { Op } from './client.js'
import { type End, type Entry, type EntryRow, encodeEntry, encodeMessage, entryRow, type Header } from './entry.js'
import { endOf, fixed, INSTANT_DIGITS, type Keys } from './keys.js'
import type { Meta } from './meta.js'
import { rankOf } from './rank.js'
import { encode } from './record.js'
import type { SessionRecord } from './session-record.js'
import { now } from './time.js'
import { put, remove, removeRange } from './txn.js'

/** What waiters hear of. */
export interface News {
  /** Something is ready. */
  readonly ready?: boolean
  /** The message that became ready, where it is one. */
  readonly entry?: EntryRow
  /** Something is due then. */
  readonly dueAt?: number
  /** The cancel of these claimed messages was requested. */
  readonly cancels?: readonly string[]
  /** These have ended, or are gone. */
  readonly ended?: readonly string[]
}

/** A dead letter, beside its payload. */
export interface Death {
  readonly entry: readonly unknown[]
  readonly reason: string
  readonly attempts: number
  readonly deadAt: number
  /** Its key in the order of deaths, without the name of the queue. */
  readonly order: string
}

/** The length of results and payloads that are left where they are until their id is free again. */
const LEFT_IN_PLACE = 1_024

export class Change {
  readonly ops: Op[] = []
  /** Ids whose outcome is kept from now on. */
  readonly outcomes: string[] = []
  readonly #endedElsewise: string[] = []
  readonly #cancels: string[] = []
  readonly now = now()
  #ready = 0
  #isInFront = false
  #single: Entry | undefined
  #dueAt = 0
  #named = 0

  constructor(
    readonly keys: Keys,
    readonly meta: Meta,
    readonly record: SessionRecord,
    /** Whose claims and numbers are changed. */
    readonly session: string,
    /** No other change of this session has this name; later ones have later names. */
    readonly name: string,
  ) {}

  /** Takes a claim of this session off; what becomes of its message has to be said too. */
  settleClaim(page: number, index: number): void {
    this.record.count('claimed', -1)
    if (this.record.settle(page, index)) this.#dropPage(page)
  }

  /** Takes a message off the ready ones or the delayed ones. `waits` where it becomes one of these again. */
  takeOff(state: 'ready' | 'delayed', key: string, entry: Entry, waits = false): void {
    this.record.count(state, -1)
    this.ops.push(remove(key))
    // A key cannot be both deleted and put.
    if (entry.expiresAt > 0 && !waits) this.ops.push(remove(expiryKey(this.keys, entry)))
  }

  /** What puts a message at its first place. */
  placed(entry: Entry, place: string): Op[] {
    const ops = [put(`${this.keys.root}${place}`, encodeEntry(entry))]
    if (entry.expiresAt > 0) ops.push(put(expiryKey(this.keys, entry), encode(place)))
    return ops
  }

  /**
   * Puts a message that is nowhere else among the ready ones. `wasAt` is where its place was last recorded, and
   * `isBehindAll` says that it comes after all that was ever ready.
   */
  makeReady(entry: Entry, wasAt: string | undefined, isBehindAll = false): void {
    if (!isBehindAll) this.comeInFront()
    this.record.count('ready')
    this.#ready += 1
    if (entry.expiresAt > 0) this.#due(entry.expiresAt)
    const place = `r/${rankOf(entry, this.meta)}`
    this.#single = this.#recorded(entry, place, wasAt)
    this.ops.push(...this.placed(this.#single, place))
  }

  /** Something becomes ready that may come before what others take for the first. */
  comeInFront(): void {
    this.#isInFront = true
  }

  get isInFront(): boolean {
    return this.#isInFront
  }

  /** Puts a message that is nowhere else among the delayed ones. */
  delay(entry: Entry, dueAt: number, wasAt: string | undefined): void {
    this.record.count('delayed')
    this.#due(entry.expiresAt > 0 ? Math.min(dueAt, entry.expiresAt) : dueAt)
    const place = `d/${fixed(dueAt, INSTANT_DIGITS)}${this.#unique()}`
    this.ops.push(...this.placed(this.#recorded(entry, place, wasAt), place))
  }

  /** Makes a dead letter of a message that is nowhere else. */
  bury(entry: Entry, reason: string, attempts: number): void {
    this.record.count('dead')
    this.record.count('bytes', -entry.size)
    const order = `${fixed(this.now, INSTANT_DIGITS)}${this.#unique()}`
    const death: Death = { entry: entryRow(entry), reason, attempts, deadAt: this.now, order }
    this.ops.push(
      put(`${this.keys.dead}${entry.id}`, encode(death)),
      put(`${this.keys.deaths}${order}`, encode(entry.id)),
    )
    this.#endedElsewise.push(entry.id)
  }

  /** Ends a message that is nowhere else. Its outcome is kept, and its id with it. */
  end(entry: Entry, end: End, result?: Uint8Array): void {
    this.record.count('bytes', -entry.size)
    this.#forgetPlace(entry)
    const { outcomesMs, maxOutcomes } = this.meta.settings.retention
    if (outcomesMs === 0 || maxOutcomes === 0) {
      this.ops.push(remove(`${this.keys.messages}${entry.id}`))
      this.#endedElsewise.push(entry.id)
      return
    }
    const plain = end.state === 'done' && result === undefined
    if (!plain || entry.size > LEFT_IN_PLACE) this.#strip(entry, end, result)
    this.record.count('outcomes')
    this.outcomes.push(entry.id)
  }

  /** Ends a message that is nowhere else without a trace. Its id is free again. */
  forget(entry: Entry): void {
    this.record.count('bytes', -entry.size)
    this.#forgetPlace(entry)
    this.ops.push(remove(`${this.keys.messages}${entry.id}`))
    this.#endedElsewise.push(entry.id)
  }

  requestCancel(id: string): void {
    this.#cancels.push(id)
  }

  /** The consumer is taken for dead, and the attempt for failed. */
  lapse(entry: Entry, taken: boolean, cancelRequested: boolean, wasAt: string): void {
    if (cancelRequested) return this.endCancelled(entry)
    if (taken) {
      this.record.count('dropped')
      return this.forget(entry)
    }
    const reason = `the lease lapsed on attempt ${entry.attempt} of ${this.meta.settings.maxDeliveries}`
    const failed = this.failed(withError(entry, reason), reason)
    if (failed) this.makeReady(failed, wasAt)
  }

  /** The entry with a failed attempt counted; undefined if that was its last, and it is a dead letter now. */
  failed(entry: Entry, reason: string): Entry | undefined {
    if (entry.attempt >= this.meta.settings.maxDeliveries) {
      this.bury(entry, reason, entry.attempt)
      return undefined
    }
    return this.mayReturn(entry) ? { ...entry, attempt: entry.attempt + 1 } : undefined
  }

  /** False if a message has been handed over too often, however it came back, and is a dead letter now. */
  mayReturn(entry: Entry): boolean {
    if (entry.deliveries < DELIVERIES_PER_ATTEMPT * this.meta.settings.maxDeliveries) return true
    this.bury(entry, `it was handed over ${entry.deliveries} times without being settled`, entry.attempt)
    return false
  }

  endCancelled(entry: Entry): void {
    this.record.count('cancelled')
    this.end(entry, { state: 'cancelled' })
  }

  /** Nobody took it in time. */
  expire(entry: Entry): void {
    if (entry.buryExpired) return this.bury(entry, 'its time to live ran out', entry.attempt - 1)
    this.record.count('expired')
    this.end(entry, { state: 'expired' })
  }

  /** What waiters have to hear of, if there is anything. */
  get news(): News | undefined {
    const news: News = {
      ...(this.#ready > 0 && { ready: true }),
      ...(this.#ready === 1 && this.#single && { entry: entryRow(this.#single) }),
      ...(this.#dueAt > 0 && { dueAt: this.#dueAt }),
      ...(this.#cancels.length > 0 && { cancels: this.#cancels }),
      ...(this.#endedElsewise.length > 0 && { ended: this.#endedElsewise }),
    }
    return Object.keys(news).length === 0 ? undefined : news
  }

  /** The key of the page of outcomes. */
  get endsKey(): string {
    return `${this.keys.ends}${this.session}/${this.name}`
  }

  /** All operations, with those that tell what has happened. */
  finished(): Op[] {
    const ops = [...this.ops]
    if (this.outcomes.length > 0) {
      ops.push(put(this.endsKey, encode({ at: this.now, ids: this.outcomes })))
    }
    const { news } = this
    if (news !== undefined) ops.push(put(this.keys.news, encode(news)))
    if (this.#isInFront) ops.push(put(this.keys.front, encode(this.now)))
    return ops
  }

  /** The end of a key that no other has, neither of this change nor of another; later ones of a session sort later. */
  #unique(): string {
    this.#named += 1
    return `${this.name}${this.session}${fixed(this.#named, 4)}`
  }

  #due(at: number): void {
    if (this.#dueAt === 0 || at < this.#dueAt) this.#dueAt = at
  }

  #recorded(entry: Entry, place: string, wasAt: string | undefined): Entry {
    if (wasAt === undefined || wasAt === place) return entry
    this.ops.push(put(`${this.keys.places}${entry.id}`, encode(place)))
    return { ...entry, moved: true }
  }

  #forgetPlace(entry: Entry): void {
    if (entry.moved) this.ops.push(remove(`${this.keys.places}${entry.id}`))
  }

  /** Replaces the payload by how it ended. */
  #strip(entry: Entry, end: End, result: Uint8Array | undefined): void {
    const header: Header = {
      priority: entry.priority,
      enqueuedAt: 0,
      size: 0,
      place: '',
      end: result === undefined ? end : { ...end, result: true },
    }
    this.ops.push(put(`${this.keys.messages}${entry.id}`, encodeMessage(header, result ?? new Uint8Array(0))))
  }

  #dropPage(page: number): void {
    const key = pageKey(this.keys, this.session, page)
    this.ops.push(removeRange(key, endOf(`${key}/`)))
  }
}

/** The key of a page of claims; what is told of single claims lies below it. */
export function pageKey(keys: Keys, session: string, page: number): string {
  return `${keys.claims}${session}/${fixed(page, 10)}`
}

/** Remembers why an attempt failed. */
export function withError(entry: Entry, reason: string): Entry {
  return { ...entry, errors: [...entry.errors, reason].slice(-ERRORS_KEPT) }
}

/** The key by which a message is found whose time to live has run out. */
export function expiryKey(keys: Keys, { expiresAt, id }: Entry): string {
  return `${keys.expiring}${fixed(expiresAt, INSTANT_DIGITS)}${id}`
}
