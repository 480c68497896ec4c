/**
 * Cancels a scenario at every instant there is, in every way there is, and looks whether anything was lost.
 */
import type { Observable } from 'rxjs'
import type { Delivery } from '../delivery.js'
import type { SourceOptions } from '../queue.js'
import type { QueueSource } from '../source.js'
import type { MarbleHelpers } from './marbles.js'
import { type CancelWay, type Instant, SweepRun } from './sweep-run.js'
import type { Arrival, TestQueueOptions } from './test-queue.js'

export type { CancelWay } from './sweep-run.js'

export interface CancelSweep<T> {
  /** What arrives, as for `testQueue`. */
  readonly arrivals: string
  readonly values?: Readonly<Record<string, Arrival<T>>>
  /** Settings, latencies and faults of the queue. */
  readonly options?: TestQueueOptions<T>
  /** Options of the source, but for its signal, which is the sweep's. Default: a grace of 50 frames. */
  readonly source?: Omit<SourceOptions, 'signal'>
  /**
   * The pipeline under test, or a sink that it is given to. Its handlers return Observables or plain values, so that it
   * runs in virtual time. A sink is given `signal`, which is also the source's.
   */
  readonly scenario: (
    source: QueueSource<T>,
    helpers: MarbleHelpers & { readonly signal: AbortSignal },
  ) => Observable<unknown> | PromiseLike<unknown>
  /**
   * What is done with a delivery that comes out of the pipeline unsettled. Default: it is acked at once. What `return()`
   * finds unsettled has been seen, and goes back as another attempt; by every other way it must go back as good as new.
   */
  readonly handle?: (delivery: Delivery<T>, helpers: MarbleHelpers) => PromiseLike<unknown> | unknown
  /** The last frame at which to cancel. Every frame up to it is tried, both before and after all else that happens in it. */
  readonly frames: number
  /** Default: all; for a sink, `signal` and `stop`. */
  readonly ways?: readonly CancelWay[]
  /** A message that may be left otherwise than acked or as good as new, since the scenario itself fails it. Default: none. */
  readonly mayFail?: (id: string) => boolean
}

/** What a sweep has tried. */
export interface SweepReport {
  readonly runs: number
  /** How many calls of the driver there were to cancel at. */
  readonly steps: number
}

const WAYS: readonly CancelWay[] = ['signal', 'unsubscribe', 'stop', 'return']
const WAYS_OF_SINKS: readonly CancelWay[] = ['signal', 'stop']

/**
 * Runs a scenario once for each way to cancel and each instant: every frame, and every call of the driver, both before
 * the store runs it and after, before it has answered.
 *
 * When the cancel has come to its end the store must hold no claim, nothing may be abandoned, and the driver must not be
 * called again. In the end the messages must be conserved, no timer may be left, and every message must have been acked
 * exactly once or be back in the queue, in its old order and with its attempt unchanged.
 *
 * Throws an `AssertionError` that names the way, the instant and what did not hold.
 *
 * @example
 * ```ts
 * cancelSweep({
 *   arrivals: 'ab-c',
 *   scenario: (source) => pipe(source, mergeMap((d) => of(d.payload).pipe(delay(2)), 2)),
 *   frames: 8,
 * })
 * ```
 */
export function cancelSweep<T = string>(sweep: CancelSweep<T>): SweepReport {
  const probe = new SweepRun(sweep, 'stop', { frame: sweep.frames, late: true })
  probe.check()
  let runs = 0
  for (const way of sweep.ways ?? (probe.isSink ? WAYS_OF_SINKS : WAYS)) {
    for (const instant of instants(sweep.frames, probe.steps)) {
      new SweepRun(sweep, way, instant).check()
      runs += 1
    }
  }
  return { runs, steps: probe.steps }
}

function* instants(frames: number, steps: number): Iterable<Instant> {
  for (let frame = 0; frame <= frames; frame += 1) {
    yield { frame, late: false }
    yield { frame, late: true }
  }
  for (let step = 1; step <= steps; step += 1) {
    yield { step, phase: 'before' }
    yield { step, phase: 'after' }
  }
}
