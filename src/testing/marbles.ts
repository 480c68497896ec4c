/**
 * Marble tests of queues and pipelines, in virtual time.
 */
import { TestScheduler } from 'rxjs/testing'
import { assertFrames } from './frames.js'
import { type Arrival, arrive, TestQueue, type TestQueueOptions } from './test-queue.js'

type RunHelpers = Parameters<Parameters<TestScheduler['run']>[0]>[0]

/** What a marble test is given: the helpers of RxJS, the scheduler, and queues that are fed by marbles. */
export interface MarbleHelpers extends RunHelpers {
  readonly scheduler: TestScheduler
  /**
   * A queue on a memory backend in this scheduler. Each marble enqueues, in its frame, a message whose id is the
   * character, with the payload or the entry that `values` gives it. `|`: no more come, and the queue's sources complete
   * when all are settled.
   */
  testQueue<T = string>(
    marbles: string,
    values?: Readonly<Record<string, Arrival<T>>>,
    options?: TestQueueOptions<T>,
  ): TestQueue<T>
}

export interface MarbleOptions {
  /**
   * Where virtual time ends. Default 100 000. It has to end somewhere: the lease of a claim that nobody settles is
   * renewed for ever.
   */
  readonly maxFrames?: number
}

const MAX_FRAMES = 100_000

/**
 * Runs a marble test: everything in it (queues, pipelines, handlers that return Observables) happens in virtual time,
 * and takes no real time. Works in any test runner; throws where the marbles differ.
 *
 * Native promises make no progress in it; see `asyncMarbles` for handlers that return them.
 *
 * @example
 * ```ts
 * marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
 *   const queue = testQueue('-a-b|')
 *   expectObservable(pipe(queue.source(), mergeMap((d) => of(d.payload).pipe(delay(2)), 1))).toBe('---a-(b|)')
 *   expectSubscriptions(queue.claimsOf('a')).toBe('-^-!')
 * })
 * ```
 */
export function marbles(test: (helpers: MarbleHelpers) => void, { maxFrames = MAX_FRAMES }: MarbleOptions = {}): void {
  const scheduler = new TestScheduler(assertFrames)
  scheduler.run((helpers) => {
    scheduler.maxFrames = maxFrames
    test(helpersOf(scheduler, helpers))
  })
}

/** Adds ours to the helpers of RxJS. */
export function helpersOf(scheduler: TestScheduler, helpers: RunHelpers): MarbleHelpers {
  let made = 0
  return {
    ...helpers,
    scheduler,
    testQueue: <T>(
      marbles: string,
      values?: Readonly<Record<string, Arrival<T>>>,
      options: TestQueueOptions<T> = {},
    ) => {
      made += 1
      const queue = new TestQueue<T>(`test-${made}`, scheduler, options)
      helpers.hot(marbles).subscribe({
        next: (marble) => arrive(queue, marble, values),
        complete: () => queue.end(),
      })
      return queue
    },
  }
}
