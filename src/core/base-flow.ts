/**
 * The class behind every flow: a real Observable, an AsyncIterable, and the hidden face that takes demand.
 * This file is all that ties us to the Observable of RxJS 7.
 */
import { Observable, type Subscriber } from 'rxjs'
import type { Flow } from '../flow.js'
import { type Clock, clockOf } from './clock.js'
import { type DemandObserver, type DemandSubscription, demand } from './demand.js'
import { FlowIterator } from './flow-iterator.js'

export abstract class BaseFlow<T> extends Observable<T> implements Flow<T> {
  abstract readonly clock: Clock

  constructor() {
    super((subscriber) => observe(this, subscriber))
  }

  abstract [demand](observer: DemandObserver<T>): DemandSubscription

  [Symbol.asyncIterator](): AsyncIterator<T, undefined> {
    return new FlowIterator(this)
  }
}

/** A subscriber of RxJS cannot ask; it gets whatever the source's credit allows. */
function observe<T>(flow: BaseFlow<T>, subscriber: Subscriber<T>): void {
  const subscription = flow[demand](subscriber)
  // Registered before the first request: a synchronous source can end within it.
  subscriber.add(() => subscription.cancel())
  subscription.request(Number.POSITIVE_INFINITY)
}

/** A flow that an operator makes of another. `connect` is called for each subscription. */
export class DerivedFlow<T> extends BaseFlow<T> {
  constructor(
    readonly clock: Clock,
    private readonly connect: (observer: DemandObserver<T>) => DemandSubscription,
  ) {
    super()
  }

  [demand](observer: DemandObserver<T>): DemandSubscription {
    return this.connect(observer)
  }
}

/** Any Observable as a flow. One that cannot be asked pushes: what comes too early waits for demand. */
export function asFlow<T>(observable: Observable<T>, clock: Clock = clockOf(undefined)): BaseFlow<T> {
  if (observable instanceof BaseFlow) return observable
  return new DerivedFlow(clock, (observer) => new PushedSubscription(observable, observer))
}

class PushedSubscription<T> implements DemandSubscription {
  private readonly waiting: T[] = []
  private wanted = 0
  private ended: (() => void) | undefined
  private subscription: { unsubscribe(): void } | undefined
  private closed = false

  constructor(
    private readonly observable: Observable<T>,
    private readonly observer: DemandObserver<T>,
  ) {}

  request(n: number): void {
    this.wanted += n
    this.subscription ??= this.subscribe()
    this.flush()
  }

  cancel(): void {
    this.closed = true
    this.subscription?.unsubscribe()
  }

  private subscribe(): { unsubscribe(): void } {
    let subscription: { unsubscribe(): void } | undefined
    // The handle must exist before values arrive, since an observer may cancel on the first.
    const handle = { unsubscribe: () => subscription?.unsubscribe() }
    this.subscription = handle
    subscription = this.observable.subscribe({
      next: (value) => {
        this.waiting.push(value)
        this.flush()
      },
      error: (error) => this.end(() => this.observer.error(error)),
      complete: () => this.end(() => this.observer.complete()),
    })
    if (this.closed) subscription.unsubscribe()
    return handle
  }

  private end(work: () => void): void {
    this.ended = work
    this.flush()
  }

  private flush(): void {
    while (this.wanted > 0 && this.waiting.length > 0 && !this.closed) {
      this.wanted -= 1
      this.observer.next(this.waiting.shift() as T)
    }
    if (this.ended && this.waiting.length === 0 && !this.closed) {
      this.closed = true
      this.ended()
    }
  }
}
