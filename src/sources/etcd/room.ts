/**
 * Whether a queue with limits has room for what is to become ready or delayed in it, and what is dropped where it is to make
 * room.
 */
import { QueueFullError } from '../../errors.js'
import type { Change } from './change.js'
import type { Compare } from './client.js'
import type { Desk } from './desk.js'
import { oldestReady } from './oldest.js'
import type { Candidate } from './queue-head.js'
import { get, modIs, only } from './txn.js'

/** The most messages that one transaction drops; each is a condition. */
export const MAX_VICTIMS = 60

/** Messages, and the bytes that they are charged. */
export interface Amount {
  readonly length: number
  readonly bytes: number
}

const NOTHING: Amount = { length: 0, bytes: 0 }
const NO_IDS: ReadonlySet<string> = new Set()

/** Room for what one change puts in. */
export class Room {
  readonly #desk: Desk
  readonly #change: Change
  readonly #victims: Candidate[] = []
  /** What would be dropped has an id of what is to be stored: whether that is there has to be read. */
  isUnread = false
  /** What is in it by this change, besides what it drops. */
  #more = NOTHING

  constructor(desk: Desk, change: Change) {
    this.#desk = desk
    this.#change = change
  }

  /**
   * Sees to room for so much more, and counts on it from then on; an error where there is none. What leaves the queue by the
   * same change makes room besides.
   */
  async take(
    wanted: Amount,
    leaving = NOTHING,
    ids: ReadonlySet<string> = NO_IDS,
  ): Promise<QueueFullError | undefined> {
    const { limits } = this.#desk.meta.settings
    if (limits.maxLength !== null || limits.maxBytes !== null) {
      const full = await this.#make(sum(wanted, leaving, -1), ids)
      if (full) return full
    }
    this.#more = sum(this.#more, wanted)
    return undefined
  }

  /** An error if an empty queue would not have room for so much. */
  tooLarge(wanted: Amount): QueueFullError | undefined {
    const exceeded = this.#exceeded(NOTHING, wanted)
    return exceeded && this.#full(exceeded)
  }

  /** Whether what has the id of one of these is dropped. Nearly always nothing is. */
  drops(messages: readonly { readonly id: string }[]): boolean {
    return this.#victims.some(({ entry }) => messages.some(({ id }) => id === entry.id))
  }

  /** What has to hold for what is dropped. */
  compare(): Compare[] {
    return this.#victims.map(({ key, mod }) => modIs(key, mod))
  }

  async #make(wanted: Amount, ids: ReadonlySet<string>): Promise<QueueFullError | undefined> {
    const { bound, arrivals, meta } = this.#desk
    const isKnown = bound !== undefined && bound.mod > 0 && bound.mod === arrivals.mod
    if (isKnown && this.#exceeded(bound, wanted) === undefined) return undefined
    const held = await readBound(this.#desk)
    const exceeded = this.#exceeded(held, wanted)
    if (exceeded === undefined) return undefined
    const isMade = meta.settings.limits.whenFull === 'dropOldest' && (await this.#dropOldest(held, wanted, ids))
    return isMade ? undefined : this.#full(exceeded)
  }

  #full(exceeded: 'maxLength' | 'maxBytes'): QueueFullError {
    const { queue, meta } = this.#desk
    return new QueueFullError(queue, exceeded, meta.settings.limits[exceeded] ?? 0)
  }

  #exceeded(held: Amount, wanted: Amount): 'maxLength' | 'maxBytes' | undefined {
    const { maxLength, maxBytes } = this.#desk.meta.settings.limits
    const { length, bytes } = sum(sum(held, this.#more), wanted)
    if (maxLength !== null && length > maxLength) return 'maxLength'
    return maxBytes !== null && bytes > maxBytes ? 'maxBytes' : undefined
  }

  /** False where that is not enough, and nothing is dropped. */
  async #dropOldest(held: Amount, wanted: Amount, ids: ReadonlySet<string>): Promise<boolean> {
    const victims: Candidate[] = []
    const dropped = new Set(this.#victims.map(({ key }) => key))
    let left = wanted
    for (const oldest of await oldestReady(this.#desk, MAX_VICTIMS)) {
      if (dropped.has(oldest.key)) continue
      victims.push(oldest)
      left = sum(left, amountOf(oldest), -1)
      if (this.#exceeded(held, left) !== undefined) continue
      this.isUnread = victims.some(({ entry }) => ids.has(entry.id))
      if (this.isUnread) return false
      for (const victim of victims) this.#drop(victim)
      return true
    }
    return false
  }

  #drop(victim: Candidate): void {
    this.#victims.push(victim)
    this.#more = sum(this.#more, amountOf(victim), -1)
    this.#change.takeOff('ready', victim.key, victim.entry)
    this.#change.record.count('dropped')
    this.#change.forget(victim.entry)
  }
}

function amountOf({ entry }: Candidate): Amount {
  return { length: 1, bytes: entry.size }
}

function sum(one: Amount, other: Amount, times = 1): Amount {
  return { length: one.length + times * other.length, bytes: one.bytes + times * other.bytes }
}

/**
 * What the queue holds at most from now on, as long as nothing arrives: all that others do meanwhile makes it less. Read in
 * one step together with where arrivals stand.
 */
async function readBound(desk: Desk): Promise<Amount> {
  const { results } = await desk.read(get(desk.keys.arrivals), desk.sessionsOp())
  const { ready, delayed, claimed, bytes } = desk.countsIn(results[1])
  const bound = { mod: only(results[0])?.mod ?? 0, length: ready + delayed + claimed, bytes }
  desk.bound = bound
  return bound
}
