/**
 * Where arrivals stand: one record of the queue, which each transaction compares and puts in which something arrives.
 */
import type { KeyValue } from './client.js'
import type { EntryRow } from './entry.js'
import type { Meta } from './meta.js'
import { decode } from './record.js'

export interface Arrivals {
  readonly turn: number
  /** The least urgent priority that was ever made ready; -1 where that is not known. */
  readonly back: number
  readonly mod: number
}

export interface StoredArrivals {
  readonly n: number
  readonly p: number
  /** Something became ready. */
  readonly r?: number
  /** The nearest instant at which something that arrived is due. */
  readonly d?: number
  /** The message, where it is one that became ready. */
  readonly e?: EntryRow
}

/** As if the least urgent of all had been there. */
export const ANY_PRIORITY = 65_535

export const NO_ARRIVALS: Arrivals = { turn: 0, back: -1, mod: 0 }

export function decodeArrivals(value: Buffer): StoredArrivals {
  return decode<StoredArrivals>(value, 'the arrivals of the queue')
}

/** As they stand by what was stored. */
export function arrivalsOf({ n, p }: StoredArrivals, mod: number): Arrivals {
  return { turn: n, back: p, mod }
}

/**
 * As they stood at a revision, where `back` was known before. They begin with that revision, also where somebody has deleted
 * them: each turn has taken a revision, so none was later.
 */
export function arrivalsAt(revision: number, stored: KeyValue | undefined, back: number): Arrivals {
  return stored ? arrivalsOf(decodeArrivals(stored.value), stored.mod) : { turn: revision, back, mod: 0 }
}

/** What is to be stored when messages of these priorities become ready. */
export function nextArrivals({ turn, back }: Arrivals, priorities: Iterable<number>): StoredArrivals {
  return { n: turn + 1, p: Math.max(back, ...priorities) }
}

/** Whether what arrives with this priority comes after all that was ever ready. */
export function isBehindAll(priority: number, { back }: Arrivals, { ageing }: Meta): boolean {
  return ageing === null && back !== -1 && priority >= back
}
