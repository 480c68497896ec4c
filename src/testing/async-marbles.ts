/**
 * Marble tests whose handlers are promises.
 */
import { helpersOf, type MarbleHelpers, type MarbleOptions } from './marbles.js'
import { PatientScheduler } from './patient-scheduler.js'

const MAX_FRAMES = 100_000

/** The helpers of {@link asyncMarbles}: those of `marbles`, but `flush` is something to wait for. */
export interface AsyncMarbleHelpers extends Omit<MarbleHelpers, 'flush'> {
  /** Fulfils when all that is planned has happened. */
  flush(): Promise<void>
}

/**
 * Runs a marble test in which native promises make progress: after every frame the event loop turns a few times, so
 * that async functions go on before the next frame comes. Needs no fake timers of a test runner.
 *
 * The test may itself be async. Virtual time begins when it first waits, or has returned, and goes on while it waits;
 * after `await flush()` all frames are over. Rejects where the marbles differ, with what the test throws, and when it
 * waits for something that neither virtual time nor a second of real time brings.
 *
 * Operators of RxJS that take time (`delay`, `timer`, …) take virtual time. Only one such test can run at a time.
 *
 * @example
 * ```ts
 * await asyncMarbles(({ testQueue, expectObservable }) => {
 *   const queue = testQueue('-a-b|')
 *   expectObservable(pipe(queue.source(), mergeMap(async (d) => d.payload, 1))).toBe('-a-b|')
 * })
 * ```
 */
export async function asyncMarbles(
  test: (helpers: AsyncMarbleHelpers) => void | PromiseLike<void>,
  { maxFrames = MAX_FRAMES }: MarbleOptions = {},
): Promise<void> {
  const scheduler = new PatientScheduler()
  const leave = scheduler.enter()
  try {
    const helpers = helpersOf(scheduler, scheduler.helpers())
    await scheduler.play(maxFrames, Promise.resolve(test({ ...helpers, flush: () => scheduler.idle() })))
  } finally {
    leave()
  }
}
