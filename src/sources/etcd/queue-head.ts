/**
 * What is known of the head of a queue: its first ready messages, and when something is due. It is read with others'
 * transactions, goes on with what the watch tells, and is compared with what is stored before anything rests on it.
 */
import type { Compare, KeyValue, Op, Result } from './client.js'
import { type Entry, type EntryRow, entryOf, readableEntry } from './entry.js'
import { INSTANT_DIGITS, type Keys } from './keys.js'
import type { Meta } from './meta.js'
import { rankOf } from './rank.js'
import { get, only, range, untouchedSince } from './txn.js'
import { DueWindow, ReadyWindow } from './windows.js'

/** A ready message that may be claimed. */
export interface Candidate {
  readonly key: string
  readonly mod: number
  readonly entry: Entry
}

/** The first ready messages, and when something is due, as the store was at a revision. */
export interface Head {
  readonly revision: number
  readonly candidates: readonly Candidate[]
  /** What stands among them and is no entry. */
  readonly unreadable: readonly { readonly key: string; readonly mod: number }[]
  /** There is nothing ready besides. */
  readonly complete: boolean
  /** There is more where it was looked for. */
  readonly isCut: boolean
  /** When the next delayed message is due, or the next time to live ends; 0 for never. */
  readonly dueAt: number
}

export class QueueHead {
  /** As it was when last seen. */
  current: Head | undefined
  readonly #keys: Keys
  readonly #meta: () => Meta
  readonly #ready: ReadyWindow
  readonly #delayed: DueWindow
  readonly #expiring: DueWindow
  #limit = 0
  /** Where the last look began. */
  #from = ''
  /** The first message that was told to be ready since the head was read. */
  #told: { readonly row: EntryRow; readonly mod: number } | undefined

  constructor(keys: Keys, meta: () => Meta) {
    this.#keys = keys
    this.#meta = meta
    this.#ready = new ReadyWindow(keys.ready)
    this.#delayed = new DueWindow(keys.delayed)
    this.#expiring = new DueWindow(keys.expiring)
  }

  /** Places are others now, or of another past: the next look begins where all begins. */
  reset(): void {
    this.#ready.reset()
  }

  /** The last look has shown too little: the next one goes to the end. */
  widen(): void {
    this.#ready.widen()
  }

  /** What {@link note} takes. `all`: from where all begins, whatever is known of that. */
  ops(limit: number, all = false): Op[] {
    const keys = this.#keys
    this.#limit = limit
    this.#from = all ? keys.ready : this.#start
    return [get(keys.front), range(this.#from, this.#ready.end, limit), ...this.dueOps()]
  }

  /** Where a look begins. With ageing anything may come before anything. */
  get #start(): string {
    return this.#meta().ageing === null ? this.#ready.start : this.#keys.ready
  }

  /** These were ready. */
  reached(candidates: readonly Candidate[]): void {
    const last = candidates.at(-1)
    if (last) this.#ready.reached(last.key)
  }

  /** What holds as long as nothing has come before the first of these, or between them, since the look at a revision. */
  nothingBefore(first: string, last: string, revision: number): Compare[] {
    const { front, ready } = this.#keys
    const start = this.#start
    const isAfterStart = start !== ready && first >= start
    const from = isAfterStart ? start : ready
    return [
      ...(isAfterStart ? [untouchedSince(this.#ready.startAt, front)] : []),
      ...(from < last ? [untouchedSince(revision, from, last)] : []),
    ]
  }

  /** Reads the first ready messages, and changes nothing of what is known. `isWhole` if nothing is behind where it ends. */
  frontOp(limit: number): { readonly op: Op; readonly isWhole: boolean } {
    return { op: range(this.#keys.ready, this.#ready.end, limit), isWhole: this.#ready.isWhole }
  }

  /** What {@link dueIn} takes. */
  dueOps(): Op[] {
    const keys = this.#keys
    return [range(keys.delayed, this.#delayed.end, 1), range(keys.expiring, this.#expiring.end, 1)]
  }

  /**
   * The first ready messages and what is due next, as they were at a revision; undefined where something may have
   * come before where the look began.
   */
  note([front, ready, ...dues]: readonly Result[], revision: number): Head | undefined {
    if (!this.#ready.isSure(this.#from, only(front)?.mod ?? 0)) {
      this.#ready.forgetStart()
      this.current = undefined
      return undefined
    }
    const candidates: Candidate[] = []
    const unreadable: { key: string; mod: number }[] = []
    for (const { key, mod, value } of ready?.kvs ?? []) {
      const entry = readableEntry(value)
      if (entry) candidates.push({ key, mod, entry })
      else unreadable.push({ key, mod })
    }
    const isCut = ready?.more === true
    const complete = this.#ready.isWhole && !isCut
    const shown = { first: ready?.kvs[0]?.key, last: ready?.kvs.at(-1)?.key, complete }
    this.#ready.noteStart(this.#from, shown, revision)
    this.#ready.note(ready?.count ?? 0, this.#limit, shown.last)
    const head = { revision, candidates, unreadable, complete, isCut, dueAt: this.dueIn(dues) }
    this.current = head
    // The watch may have told of something that came after this.
    if (this.#told) this.noteReady(this.#told.row, this.#told.mod)
    return this.current
  }

  /** When something is due next, of what {@link dueOps} read; 0 for never. */
  dueIn([delayed, expiring]: readonly Result[]): number {
    const keys = this.#keys
    const dues = [
      this.#delayed.note(delayed?.count ?? 0, instantIn(keys.delayed, only(delayed))),
      this.#expiring.note(expiring?.count ?? 0, instantIn(keys.expiring, only(expiring))),
    ]
    const dueAt = Math.min(...dues.filter((at) => at > 0))
    return Number.isFinite(dueAt) ? dueAt : 0
  }

  /** A message became ready: if nothing was before it, it is what may be claimed. */
  noteReady(row: EntryRow, mod: number): void {
    const { current: head } = this
    if (this.#told === undefined || this.#told.mod <= (head?.revision ?? 0)) this.#told = { row, mod }
    if (head === undefined || !head.complete || head.candidates.length > 0 || mod <= head.revision) return
    const entry = entryOf(row)
    const key = `${this.#keys.ready}${rankOf(entry, this.#meta())}`
    // What else has come since the head was read is found out by comparing with its revision.
    this.current = { ...head, candidates: [{ key, mod, entry }] }
    if (entry.expiresAt > 0) this.noteDue(entry.expiresAt)
  }

  /** Something is due earlier than was known. */
  noteDue(at: number): void {
    if (this.current && (this.current.dueAt === 0 || at < this.current.dueAt))
      this.current = { ...this.current, dueAt: at }
  }
}

function instantIn(prefix: string, stored: KeyValue | undefined): number {
  return stored === undefined ? 0 : Number.parseInt(stored.key.slice(prefix.length, prefix.length + INSTANT_DIGITS), 16)
}
