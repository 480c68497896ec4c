/**
 * Where a message stands among the ready ones: by `rank`, then `place`, then `arrival`.
 *
 * Without ageing the rank is the priority and the place the instant of arrival. With it all priorities up to the cap
 * share one rank that comes first, and the place is the arrival plus what the priority costs in waiting: a sum that
 * never changes while the message waits. Priorities above the cap keep ranks of their own.
 */
import { type Ageing, MAX_PRIORITY } from '../../driver.js'

/** The rank of all messages for which waiting makes up for priority. */
export const AGED = -1

/** A step of two years: a longer one orders no messages otherwise, and its multiples would not be whole numbers. */
const LONGEST_STEP_MS = Math.floor(Number.MAX_SAFE_INTEGER / 2 / MAX_PRIORITY)

/** What one step of priority is worth in places. */
export function stepOf({ stepMs }: Ageing): number {
  return Math.min(stepMs, LONGEST_STEP_MS)
}

export interface Rank {
  readonly rank: number
  readonly place: number
}

export function rankOf(priority: number, arrivedAt: number, ageing: Ageing | null): Rank {
  if (ageing === null || priority > ageing.cap) return { rank: priority, place: arrivedAt }
  return { rank: AGED, place: arrivedAt + Math.round(priority * stepOf(ageing)) }
}
