import type { SchedulerLike } from 'rxjs'

/**
 * The clock of a memory backend, in whole milliseconds since the backend was made.
 *
 * Counting from there keeps instants small integers, which the engine stores without a box. What users see is
 * turned back into epoch milliseconds by {@link Clock.shown}.
 */
export class Clock {
  /** The current instant, rounded down: a thing is due when its instant is not above it. */
  now = 0
  /** The current instant, rounded up: durations start here, so that none is cut short by rounding. */
  ahead = 0

  readonly #time: () => number
  readonly #epoch: number

  constructor(scheduler: SchedulerLike | undefined) {
    this.#time = scheduler === undefined ? monotonicTime : () => scheduler.now()
    this.#epoch = Math.floor(this.#time())
  }

  /** Reads the time. Called once per verb, so that one verb happens at one instant. */
  read(): void {
    const elapsed = this.#time() - this.#epoch
    this.now = Math.floor(elapsed)
    this.ahead = Math.ceil(elapsed)
  }

  /** An instant of this clock as epoch milliseconds. */
  shown(instant: number): number {
    return this.#epoch + instant
  }
}

/** Real time that a step of the wall clock cannot move, so no lease is lost to one. */
function monotonicTime(): number {
  return performance.timeOrigin + performance.now()
}
