/**
 * One run of a cancel sweep: one way to cancel, at one instant.
 */
import { isObservable, type Observable } from 'rxjs'
import { TestScheduler } from 'rxjs/testing'
import { BaseFlow } from '../core/base-flow.js'
import type { Delivery } from '../delivery.js'
import type { Released } from '../events.js'
import { Eventual } from '../eventual.js'
import type { QueueSource } from '../source.js'
import type { CancelSweep } from './cancel-sweep.js'
import { helpersOf, type MarbleHelpers } from './marbles.js'
import { type Findings, verify } from './sweep-checks.js'
import type { TestQueue } from './test-queue.js'

/** The ways in which a consumer can be cancelled. */
export type CancelWay = 'signal' | 'unsubscribe' | 'stop' | 'return'

/** When to cancel: in a frame, before or after all else that happens in it, or around a call of the driver. */
export type Instant =
  | { readonly frame: number; readonly late: boolean }
  | { readonly step: number; readonly phase: 'before' | 'after' }

const GRACE_MS = 50
/** What arrivals call, which go on after the cancel. */
const ARRIVING: ReadonlySet<string> = new Set(['enqueue', 'settings'])
/** Long enough for the grace, the settle bound and every lease. */
const LONGEST_RUN = 1_000_000

export class SweepRun<T> {
  /** Calls of the driver so far. */
  steps = 0
  isSink = false
  private readonly scheduler = new TestScheduler(() => {})
  private readonly controller = new AbortController()
  private helpers!: MarbleHelpers
  private queue!: TestQueue<T>
  private source!: QueueSource<T>
  private leave: () => void = () => {}
  private cancelled = false
  private readonly findings: { -readonly [K in keyof Findings]: Findings[K] } = {
    acks: [],
    requeues: [],
    laterCalls: [],
  }

  constructor(
    private readonly sweep: CancelSweep<T>,
    private readonly way: CancelWay,
    private readonly instant: Instant,
  ) {}

  check(): void {
    this.scheduler.run((helpers) => {
      this.scheduler.maxFrames = LONGEST_RUN
      this.start(helpersOf(this.scheduler, helpers))
    })
    this.findings.timersLeft = this.scheduler.actions.length
    this.findings.end = this.queue.inspect()
    verify(this.findings, this.sweep, this.way, this.title())
  }

  private start(helpers: MarbleHelpers): void {
    const { arrivals, values, options, scenario, source } = this.sweep
    this.helpers = helpers
    this.queue = helpers.testQueue(arrivals, values, options)
    this.queue.acks.subscribe((id) => this.findings.acks.push(id))
    this.queue.requeues.subscribe((id) => this.findings.requeues.push(id))
    this.queue.onStep((phase, verb) => this.stepped(phase, verb))
    const { signal } = this.controller
    this.source = this.queue.source({ graceMs: GRACE_MS, ...source, signal })
    this.consume(scenario(this.source, { ...helpers, signal }))
    this.plan()
  }

  /** A step that this way of cancelling never comes to is made up for at the end, so that the run ends. */
  private plan(): void {
    const { instant, scheduler } = this
    const frame = 'frame' in instant ? instant.frame : this.sweep.frames + 1
    const late = 'frame' in instant && instant.late
    scheduler.schedule(() => (late ? this.cancelLast() : this.cancel()), frame)
  }

  /** When nothing else is left to do in this frame. */
  private cancelLast(): void {
    if (this.scheduler.actions[0]?.delay === this.scheduler.frame) this.scheduler.schedule(() => this.cancelLast())
    else this.cancel()
  }

  private stepped(phase: 'before' | 'after', verb: string): void {
    if (phase === 'before') {
      this.steps += 1
      if (this.findings.released && !ARRIVING.has(verb)) this.findings.laterCalls.push(verb)
    }
    const { instant } = this
    if ('step' in instant && instant.step === this.steps && instant.phase === phase) this.cancel()
  }

  private cancel(): void {
    if (this.cancelled) return
    this.cancelled = true
    if (this.way === 'signal') this.controller.abort(new Error('the sweep'))
    else if (this.way !== 'stop') this.leave()
    void this.source.stop().then((released: Released) => {
      this.findings.released = released
      this.findings.atRelease = this.queue.inspect()
    })
  }

  /** Consumes by the face that this way of cancelling belongs to. */
  private consume(consumer: Observable<unknown> | PromiseLike<unknown>): void {
    if (!isObservable(consumer)) {
      this.isSink = true
      consumer.then(nothing, nothing)
    } else if (this.way === 'return' && consumer instanceof BaseFlow) this.iterate(consumer)
    else {
      const subscription = consumer.subscribe({ next: (value) => this.handle(value), error: nothing })
      this.leave = () => subscription.unsubscribe()
    }
  }

  /** Pulls by hand: a native loop would not make progress in virtual time. */
  private iterate(flow: BaseFlow<unknown>): void {
    const iterator = flow[Symbol.asyncIterator]()
    const step = (): void => {
      iterator.next().then(({ done, value }) => {
        if (!done) this.handle(value).then(step, step)
      }, nothing)
    }
    step()
    this.leave = () => void iterator.return?.()
  }

  private handle(value: unknown): Eventual<unknown> {
    const { handle = ackIt } = this.sweep
    const deliveries = (Array.isArray(value) ? value : [value]).filter(isDelivery) as Delivery<T>[]
    const unsettled = deliveries.filter(({ settled }) => !settled)
    return Eventual.all(unsettled.map((delivery) => Eventual.from(handle(delivery, this.helpers))))
  }

  private title(): string {
    const { instant, way } = this
    if ('frame' in instant) return `cancelled by ${way} ${instant.late ? 'at the end of' : 'in'} frame ${instant.frame}`
    return `cancelled by ${way} ${instant.phase} driver call ${instant.step}`
  }
}

function ackIt(delivery: Delivery<unknown>): PromiseLike<unknown> {
  return delivery.ack()
}

function isDelivery(value: unknown): value is Delivery<unknown> {
  return typeof value === 'object' && value !== null && 'ack' in value && 'fence' in value
}

function nothing(): void {}
