/**
 * How far a look at the head of an ordered list of keys goes.
 *
 * The server walks all keys of a range before it applies the limit, at about a microsecond each. So what keeps a look cheap
 * is not its limit but an end that is near: a little behind what was seen last. Only where that shows too little all is
 * walked.
 */
import { endOf, fixed, INSTANT_DIGITS } from './keys.js'
import { advanced } from './rank.js'
import { now } from './time.js'

/** So many keys are walked without a thought. */
const FEW = 256

/** The head of the ready messages. */
export class ReadyWindow {
  readonly #prefix: string
  /** The last key that was seen; undefined while all are few. */
  #seen: string | undefined
  /** How far behind that the end is, in turns or in milliseconds of waiting. */
  #ahead = 64

  constructor(prefix: string) {
    this.#prefix = prefix
  }

  /** Whether a look shows all there is. */
  get isWhole(): boolean {
    return this.#seen === undefined
  }

  get end(): string {
    return this.#seen === undefined ? endOf(this.#prefix) : this.#prefix + advanced(this.#seen, this.#ahead)
  }

  /** What a look has shown: how many keys were walked, and the last that was read. */
  note(walked: number, limit: number, last: string | undefined): void {
    if (this.isWhole && walked <= FEW) return
    if (last !== undefined) this.#seen = last.slice(this.#prefix.length)
    if (walked > FEW + 4 * limit) this.#ahead = Math.max(1, this.#ahead / 2)
    else if (walked < 2 * limit) this.#ahead = Math.min(this.#ahead * 2, 2 ** 40)
  }

  /** The window has shown too little: the next look walks all. */
  widen(): void {
    this.#seen = undefined
  }
}

/** The head of what is ordered by instants. */
export class DueWindow {
  readonly #prefix: string
  /** How far ahead a look goes. */
  #aheadMs = Number.POSITIVE_INFINITY

  constructor(prefix: string) {
    this.#prefix = prefix
  }

  get end(): string {
    if (!Number.isFinite(this.#aheadMs)) return endOf(this.#prefix)
    return `${this.#prefix}${fixed(now() + this.#aheadMs, INSTANT_DIGITS)}`
  }

  /** What a look has shown. Answers the first instant, or until when there is none; 0 where there is none at all. */
  note(walked: number, firstAt: number): number {
    const aheadMs = this.#aheadMs
    if (walked > FEW) this.#aheadMs = Math.max(100, firstAt - now() + 100)
    else if (firstAt === 0 && Number.isFinite(aheadMs))
      this.#aheadMs = aheadMs > LONGEST_MS ? Number.POSITIVE_INFINITY : aheadMs * 4
    if (firstAt > 0) return firstAt
    return Number.isFinite(aheadMs) ? now() + aheadMs : 0
  }
}

/** Beyond some years all is walked again. */
const LONGEST_MS = 2 ** 38
