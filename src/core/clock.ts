/**
 * Time as the engine sees it: the one file that touches native timers.
 *
 * In real time instants are monotonic (a jump of the wall clock loses no lease) but on the scale of epoch milliseconds.
 * With a scheduler of the caller's, all of it is that scheduler's: instants, delays and "as soon as this turn ends".
 */
import type { SchedulerLike } from 'rxjs'
import { Eventual } from '../eventual.js'

/** The longest delay that a native timer takes; longer ones go in slices. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

/** Stops what was scheduled. Repeating it is harmless. */
export interface Timer {
  stop(): void
}

export interface Clock {
  now(): number
  /** Runs `work` once after `delayMs`, however long that is. */
  after(delayMs: number, work: () => void): Timer
  /** Runs `work` when the current turn of the program has ended, within the same instant. */
  soon(work: () => void): void
  /** From 0 up to 1. Constant in virtual time. */
  random(): number
  /** The promise that callers get: native in real time, driven by the scheduler in virtual time. */
  promise<T>(eventual: Eventual<T>): Promise<T>
}

/** The clock of a scheduler, or of real time when there is none. */
export function clockOf(scheduler: SchedulerLike | undefined): Clock {
  return scheduler === undefined ? REAL_CLOCK : new ScheduledClock(scheduler)
}

class RealClock implements Clock {
  readonly #origin = performance.timeOrigin

  now(): number {
    return this.#origin + performance.now()
  }

  after(delayMs: number, work: () => void): Timer {
    return new SlicedTimer(this, delayMs, work)
  }

  /** Not by the scheduler of RxJS, which makes an interval and three objects for what one timeout does. */
  start(work: () => void, delayMs: number): () => void {
    const timeout = setTimeout(work, delayMs)
    return () => clearTimeout(timeout)
  }

  soon(work: () => void): void {
    // Not `queueMicrotask`, which makes an async resource for each call, at several times the cost.
    void NOW.then(work)
  }

  random(): number {
    return Math.random()
  }

  promise<T>(eventual: Eventual<T>): Promise<T> {
    return eventual.promise()
  }
}

class ScheduledClock implements Clock {
  constructor(private readonly scheduler: SchedulerLike) {}

  now(): number {
    return this.scheduler.now()
  }

  after(delayMs: number, work: () => void): Timer {
    return new SlicedTimer(this, delayMs, work)
  }

  start(work: () => void, delayMs: number): () => void {
    const action = this.scheduler.schedule(work, delayMs)
    return () => action.unsubscribe()
  }

  soon(work: () => void): void {
    this.scheduler.schedule(work)
  }

  random(): number {
    return 0.5
  }

  promise<T>(eventual: Eventual<T>): Promise<T> {
    const exposed = new Eventual<T>()
    eventual.then(
      (value) => this.soon(() => exposed.resolve(value)),
      (error) => this.soon(() => exposed.reject(error)),
    )
    return exposed
  }
}

/** What a timer counts down by. */
interface Ticker {
  now(): number
  /** Runs `work` after a delay that a native timer can hold, unless what it gives is called before. */
  start(work: () => void, delayMs: number): () => void
}

/** Counts down in slices that a native timer can hold. */
class SlicedTimer implements Timer {
  private readonly dueAt: number
  private stopSlice: () => void

  constructor(
    private readonly ticker: Ticker,
    delayMs: number,
    private readonly work: () => void,
  ) {
    this.dueAt = ticker.now() + delayMs
    this.stopSlice = this.arm()
  }

  stop(): void {
    this.stopSlice()
  }

  private arm(): () => void {
    // Rounded up: a native timer that fires a fraction early would find nothing due yet.
    const restMs = Math.max(0, Math.ceil(this.dueAt - this.ticker.now()))
    return this.ticker.start(() => this.fire(), Math.min(restMs, LONGEST_TIMER_MS))
  }

  private fire(): void {
    if (this.dueAt - this.ticker.now() >= 1) this.stopSlice = this.arm()
    else this.work()
  }
}

const NOW = Promise.resolve()

const REAL_CLOCK = new RealClock()
