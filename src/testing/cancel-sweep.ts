/**
 * Cancels a scenario at every instant there is, in every way there is, and looks whether anything was lost.
 */
import { AssertionError } from 'node:assert'
import type { Observable } from 'rxjs'
import { TestScheduler } from 'rxjs/testing'
import { BaseFlow } from '../core/base-flow.js'
import type { Delivery } from '../delivery.js'
import type { StoredMessage } from '../driver.js'
import type { Released } from '../events.js'
import type { QueueSource } from '../source.js'
import { helpersOf, type MarbleHelpers } from './marbles.js'
import type { Arrival, TestQueue, TestQueueOptions } from './test-queue.js'

/** The ways in which a consumer can be cancelled. */
export type CancelWay = 'signal' | 'unsubscribe' | 'stop' | 'return'

export interface CancelSweep<T> {
  /** What arrives, as for `testQueue`. */
  readonly arrivals: string
  readonly values?: Readonly<Record<string, Arrival<T>>>
  /** Settings, latencies and faults of the queue. */
  readonly options?: TestQueueOptions<T>
  /** The pipeline under test. Its handlers return Observables or plain values, so that it runs in virtual time. */
  readonly scenario: (source: QueueSource<T>, helpers: MarbleHelpers) => Observable<unknown>
  /** The last frame at which to cancel. Every frame up to it is tried. */
  readonly frames: number
  /** Default: all. */
  readonly ways?: readonly CancelWay[]
  /** A message that may be left otherwise than acked or as good as new, since the scenario itself fails it. Default: none. */
  readonly mayFail?: (id: string) => boolean
}

/** What a sweep has tried. */
export interface SweepReport {
  readonly runs: number
}

type Instant = { readonly frame: number } | { readonly step: number; readonly phase: 'before' | 'after' }

const WAYS: readonly CancelWay[] = ['signal', 'unsubscribe', 'stop', 'return']
const GRACE_MS = 50
const LONGEST_TEST = 1_000_000

/**
 * Runs a scenario once for each way to cancel and each instant: every frame, and every call of the driver, both before
 * the store runs it and after, before it has answered. After each run it checks that the messages are conserved, that
 * no claim, timer or wait is left, and that every message is acked or back in the queue with its attempt unchanged.
 * Throws, naming the way and the instant, where that does not hold.
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
  const steps = countSteps(sweep)
  let runs = 0
  for (const way of sweep.ways ?? WAYS) {
    for (const instant of instants(sweep.frames, steps)) {
      new SweepRun(sweep, way, instant).check()
      runs += 1
    }
  }
  return { runs }
}

function* instants(frames: number, steps: number): Iterable<Instant> {
  for (let frame = 0; frame <= frames; frame += 1) yield { frame }
  for (let step = 1; step <= steps; step += 1) {
    yield { step, phase: 'before' }
    yield { step, phase: 'after' }
  }
}

/** How many calls of the driver the scenario makes when it is cancelled at its last frame. */
function countSteps<T>(sweep: CancelSweep<T>): number {
  const run = new SweepRun(sweep, 'stop', { frame: sweep.frames })
  run.check()
  return run.steps
}

class SweepRun<T> {
  steps = 0
  private queue!: TestQueue<T>
  private released: Released | undefined
  private cancelled = false
  private cancel: () => void = () => {}
  private leftOver = 0

  constructor(
    private readonly sweep: CancelSweep<T>,
    private readonly way: CancelWay,
    private readonly instant: Instant,
  ) {}

  check(): void {
    const scheduler = new TestScheduler(() => {})
    scheduler.run((helpers) => {
      scheduler.maxFrames = LONGEST_TEST
      this.start(helpersOf(scheduler, helpers))
    })
    this.leftOver = scheduler.actions.length
    this.verify()
  }

  private start(helpers: MarbleHelpers): void {
    const { arrivals, values, options, scenario } = this.sweep
    const stop = new AbortController()
    this.queue = helpers.testQueue(arrivals, values, options)
    const source = this.queue.source({ signal: stop.signal, graceMs: GRACE_MS })
    const flow = scenario(source, helpers)
    const consumption = this.consume(flow)
    this.cancel = () => {
      if (this.cancelled) return
      this.cancelled = true
      if (this.way === 'signal') stop.abort(new Error('the sweep'))
      else if (this.way !== 'stop') consumption()
      void source.stop().then((released) => {
        this.released = released
      })
    }
    this.queue.onStep((phase) => this.stepped(phase))
    if ('frame' in this.instant) helpers.scheduler.schedule(() => this.cancel(), this.instant.frame)
    // A step that this way of cancelling never comes to: the run has to end all the same.
    else helpers.scheduler.schedule(() => this.cancel(), this.sweep.frames + 1)
  }

  private stepped(phase: 'before' | 'after'): void {
    if (phase === 'before') this.steps += 1
    if ('step' in this.instant && this.instant.step === this.steps && this.instant.phase === phase) this.cancel()
  }

  /** Consumes the flow by the face that this way of cancelling belongs to; the function ends that. */
  private consume(flow: Observable<unknown>): () => void {
    if (this.way === 'return' && flow instanceof BaseFlow) return iterate(flow)
    const subscription = flow.subscribe({ next: settleIfDelivery, error: () => {} })
    return () => subscription.unsubscribe()
  }

  private verify(): void {
    const { stats, messages } = this.queue.inspect()
    const { ready, delayed, claimed, dead } = stats
    const ended =
      stats.ackedTotal +
      stats.forwardedTotal +
      stats.purgedTotal +
      stats.expiredTotal +
      stats.cancelledTotal +
      stats.droppedTotal
    this.expect(stats.enqueuedTotal === ready + delayed + claimed + dead + ended, 'messages are conserved', stats)
    this.expect(claimed === 0, 'no claim is left', stats)
    this.expect(this.released !== undefined, 'the cancel has come to its end', this.released)
    this.expect(this.released?.abandoned === 0, 'nothing is abandoned', this.released)
    this.expect(this.leftOver === 0, 'no timer is left', this.leftOver)
    for (const message of messages) this.verifyMessage(message)
    if (dead > 0) this.expect(this.sweep.mayFail !== undefined, 'nothing is dead', stats)
  }

  private verifyMessage({ id, attempt, state }: StoredMessage): void {
    if (this.sweep.mayFail?.(id)) return
    this.expect(attempt === 1 && state === 'ready', `message ${id} is acked or as good as new`, { attempt, state })
  }

  private expect(holds: boolean, what: string, found: unknown): void {
    if (holds) return
    const when =
      'frame' in this.instant
        ? `at frame ${this.instant.frame}`
        : `${this.instant.phase} driver call ${this.instant.step}`
    throw new AssertionError({
      message: `${what}: not when cancelled by ${this.way} ${when}; found ${JSON.stringify(found)}`,
    })
  }
}

/** Pulls by hand: a native loop would not make progress in virtual time. */
function iterate(flow: BaseFlow<unknown>): () => void {
  const iterator = flow[Symbol.asyncIterator]()
  const step = (): void => {
    iterator.next().then(
      ({ done, value }) => {
        if (done) return
        settleIfDelivery(value)
        step()
      },
      () => {},
    )
  }
  step()
  return () => void iterator.return?.()
}

/** What reaches the end of the pipeline unsettled has been handled by it. */
function settleIfDelivery(value: unknown): void {
  for (const item of Array.isArray(value) ? value : [value]) {
    if (isDelivery(item) && !item.settled) void item.ack()
  }
}

function isDelivery(value: unknown): value is Delivery<unknown> {
  return typeof value === 'object' && value !== null && 'ack' in value && 'fence' in value
}
