/**
 * The place of a ready message, as text of a fixed width: the keys of ready messages sort as they are to be delivered, so
 * that the head is an unsorted read with a limit.
 */
import type { Ageing } from '../../driver.js'
import { COUNT_DIGITS, fixed } from './keys.js'

/** What decides about the place of a message. It changes only when the message arrives anew. */
export interface Placed {
  readonly priority: number
  readonly arrivedAt: number
  /** Its place in the order of commits, as text. */
  readonly arrival: string
}

/** How places are reckoned at a time: `epoch` rises with each change of `ageing`. */
export interface RankRule {
  readonly epoch: number
  readonly ageing: Ageing | null
}

/** Places of one band are compared with each other; a band comes before the next. */
const BY_PRIORITY = '0'
const BY_AGE = '1'
const ABOVE_THE_CAP = '2'

/**
 * Without ageing priority, then arrival. With it the sum of arrival and priority × step, which never changes; what is above
 * the cap comes after that, in strict order.
 */
export function rankOf({ priority, arrivedAt, arrival }: Placed, { epoch, ageing }: RankRule): string {
  const head = epochText(epoch)
  if (ageing === null) return `${head}${BY_PRIORITY}${fixed(priority, 4)}${arrival}`
  if (priority > ageing.cap) return `${head}${ABOVE_THE_CAP}${fixed(priority, 4)}${arrival}`
  return `${head}${BY_AGE}${fixed(arrivedAt + priority * ageing.stepMs, COUNT_DIGITS)}${arrival}`
}

/** A place so much further on, among those of the same priority or by the same measure of age. */
export function advanced(rank: string, by: number): string {
  const from = rank[4] === BY_AGE ? 5 : 9
  const digits = rank.slice(from, from + COUNT_DIGITS)
  return `${rank.slice(0, from)}${fixed(Number.parseInt(digits, 16) + Math.ceil(by), COUNT_DIGITS)}`
}

/** The beginning of all places that are reckoned by the rule of this epoch. */
export function epochText(epoch: number): string {
  return fixed(epoch, 4)
}

/** The place after all those of the priority of this one, where priority decides. */
export function afterPriority(rank: string): string {
  const end = 4 + 1 + 4
  return `${rank.slice(0, end)}g`
}
