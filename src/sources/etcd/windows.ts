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

/** So often all is walked, for what nobody has told. */
const LOOK_BACK_MS = 10_000
/** Where something was put in front, more may be: so many looks begin where all begins, which nothing in front disturbs. */
const LOOKS_BACK = 4

/**
 * The head of the ready messages.
 *
 * What was claimed is walked as well, until the store's history is compacted. So a look begins at what was first when
 * last seen, which holds unless something was put before it since: that is told by a key of its own.
 */
export class ReadyWindow {
  readonly #prefix: string
  #start: string
  /** The revision at which nothing was before the start. */
  #startAt = 0
  #lookedBackAt = Number.NEGATIVE_INFINITY
  /** How many looks are to begin where all begins. */
  #looksBack = 0
  /** The furthest place that was ever seen. */
  #furthest: string
  /** The last key that was seen; undefined while all are few. */
  #seen: string | undefined
  /** How far behind that the end is, in turns or in milliseconds of waiting. */
  #ahead = 64

  constructor(prefix: string) {
    this.#prefix = prefix
    this.#start = prefix
    this.#furthest = prefix
  }

  /** Where a look begins. */
  get start(): string {
    const isRecent = performance.now() - this.#lookedBackAt < LOOK_BACK_MS
    return isRecent && this.#looksBack === 0 ? this.#start : this.#prefix
  }

  get startAt(): number {
    return this.#startAt
  }

  /** Whether nothing is before where a look began, by the revision at which something was last put in front. */
  isSure(from: string, frontAt: number): boolean {
    return from === this.#prefix || frontAt <= this.#startAt
  }

  /** A look was sure. */
  noteStart(from: string, { first, last = this.#prefix, complete }: Shown, revision: number): void {
    if (from === this.#prefix) {
      this.#lookedBackAt = performance.now()
      this.#looksBack = Math.max(0, this.#looksBack - 1)
      // What was further may be of another past.
      this.#furthest = this.#prefix
    }
    this.reached(last)
    // Where nothing is ready, what comes next comes after all that ever was, or is told.
    this.#start = first ?? (complete ? this.#furthest : this.#start)
    this.#startAt = revision
  }

  /** Something was at this place. */
  reached(key: string): void {
    if (key > this.#furthest) this.#furthest = key
  }

  /** What was known is of another past. */
  reset(): void {
    this.forgetStart()
    this.#furthest = this.#prefix
    this.#startAt = -1
  }

  /** The next looks begin where all begins. */
  forgetStart(): void {
    this.#looksBack = LOOKS_BACK
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

/** What a look has shown. */
interface Shown {
  readonly first: string | undefined
  readonly last: string | undefined
  /** There is nothing besides. */
  readonly complete: boolean
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
