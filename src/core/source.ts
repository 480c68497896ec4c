/**
 * The source of a queue: makes a consumer for each subscription, and stops them all.
 */
import type { Delivery } from '../delivery.js'
import { CancelledError, ClosedError } from '../errors.js'
import type { Released } from '../events.js'
import { Eventual } from '../eventual.js'
import { checkOptions } from '../options.js'
import type { SourceOptions } from '../queue.js'
import type { QueueSource, StopBounds } from '../source.js'
import { BaseFlow } from './base-flow.js'
import type { Clock } from './clock.js'
import type { Consumer, ConsumerOptions } from './consumer.js'
import type { DeliveryHandle } from './delivery-handle.js'
import { type DemandObserver, type DemandSubscription, demand } from './demand.js'
import { EventStream } from './events.js'
import type { QueueCore } from './queue-core.js'
import { stopBounds } from './rules.js'
import { currentScope } from './scope.js'
import { onAbort } from './signals.js'
import { addUp, stopAll } from './stop-all.js'

const DEFAULTS = { drainMs: 0, graceMs: 10_000, leaseMs: 30_000, maxLeaseMs: 3_600_000, credit: 1 }

/** A consumer's options when a source says nothing. */
export function consumerDefaults<T>(core: QueueCore<T>): ConsumerOptions {
  return {
    take: false,
    group: undefined,
    partition: undefined,
    until: undefined,
    drainMs: DEFAULTS.drainMs,
    graceMs: DEFAULTS.graceMs,
    leaseMs: core.options.leaseMs ?? DEFAULTS.leaseMs,
    maxLeaseMs: DEFAULTS.maxLeaseMs,
    label: core.options.consumer ?? `${core.name}@${process.pid}`,
  }
}

export class Source<T> extends BaseFlow<Delivery<T>> implements QueueSource<T> {
  readonly events = new EventStream()
  private readonly consumers = new Set<Consumer<T>>()
  private past: Released = { released: 0, settledDuringGrace: 0, abandoned: 0 }
  private stopped = false

  constructor(
    private readonly core: QueueCore<T>,
    private readonly options: SourceOptions,
  ) {
    super()
  }

  get clock(): Clock {
    return this.core.hub.clock
  }

  stop(bounds: StopBounds = {}): Promise<Released> {
    return this.clock.promise(Eventual.resolved(bounds).then(() => this.stopNow(bounds)))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.clock.promise(this.stopNow({}).then(() => undefined))
  }

  [demand](observer: DemandObserver<Delivery<T>>): DemandSubscription {
    if (this.stopped) return failed(observer, new ClosedError('the source'))
    try {
      this.core.assertOpen()
    } catch (error) {
      return failed(observer, error)
    }
    const { signal } = this.options
    if (signal?.aborted) return failed(observer, new CancelledError('idle', { cause: signal.reason }))
    return new SourceSubscription(this.core, this.options, this.events, observer, (consumer) => this.adopt(consumer))
  }

  private adopt(consumer: Consumer<T>): void {
    this.consumers.add(consumer)
    consumer.closed.then((released) => {
      this.consumers.delete(consumer)
      this.past = addUp([this.past, released])
    })
  }

  private stopNow(bounds: StopBounds): Eventual<Released> {
    checkOptions(bounds, 'stop', stopBounds)
    this.stopped = true
    return stopAll(this.consumers, { ...bounds, ending: 'complete' }).then(() => this.past)
  }
}

/** One subscription: a consumer, the caller's signal, and the credit where the observer cannot ask. */
class SourceSubscription<T> implements DemandSubscription {
  private readonly consumer: Consumer<T>
  private readonly forget: () => void
  private readonly credit: number
  private unlimited = false

  constructor(
    core: QueueCore<T>,
    options: SourceOptions,
    private readonly events: EventStream,
    private readonly observer: DemandObserver<Delivery<T>>,
    adopt: (consumer: Consumer<T>) => void,
  ) {
    const scope = currentScope()
    const signal = options.signal
    this.credit = options.credit ?? DEFAULTS.credit
    this.consumer = core.consume(
      {
        hub: core.hub,
        scope,
        decode: (stored) => core.decode(stored),
        get observed() {
          return events.observed
        },
        emit: (event) => events.emit(event),
      },
      consumerOptions(core, { ...options, ...scope?.options }),
      {
        next: (delivery) => this.next(delivery),
        error: (error) => this.end(() => observer.error(error)),
        complete: () => this.end(() => observer.complete()),
      },
    )
    adopt(this.consumer)
    this.forget = onAbort(signal, () => this.consumer.stop({ reason: signal?.reason, ending: { error: asIs } }))
  }

  request(n: number): void {
    if (n !== Number.POSITIVE_INFINITY) return this.consumer.request(n)
    if (this.unlimited) return
    this.unlimited = true
    this.consumer.request(this.credit)
  }

  foresee(n: number): void {
    this.consumer.foresee(n)
  }

  cancel(): void {
    this.forget()
    this.consumer.stop({ ending: 'silent' })
  }

  private next(delivery: DeliveryHandle<T>): void {
    if (this.unlimited) {
      delivery.held.watch({ claimAborted: () => {}, claimEnded: () => this.consumer.request(1) })
      if (this.consumer.unsettled >= this.credit) this.events.emit({ type: 'credit-limited', credit: this.credit })
    }
    this.observer.next(delivery)
  }

  private end(work: () => void): void {
    this.forget()
    work()
  }
}

function consumerOptions<T>(core: QueueCore<T>, options: SourceOptions): ConsumerOptions {
  const defaults = consumerDefaults(core)
  return {
    take: options.autoAck ?? false,
    group: options.group,
    partition: options.partition,
    until: options.until,
    drainMs: options.drainMs ?? defaults.drainMs,
    graceMs: options.graceMs ?? defaults.graceMs,
    leaseMs: options.leaseMs ?? defaults.leaseMs,
    maxLeaseMs: options.maxLeaseMs ?? defaults.maxLeaseMs,
    label: defaults.label,
  }
}

function failed<T>(observer: DemandObserver<T>, error: unknown): DemandSubscription {
  return { request: () => observer.error(error), cancel: () => {} }
}

function asIs(cancelled: CancelledError): CancelledError {
  return cancelled
}
