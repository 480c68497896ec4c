/**
 * The iterator face. Written by hand, since an async generator cannot be cancelled while it waits.
 *
 * Each outstanding `next()` is one request. `return()` fulfils when everything that was claimed behind it is settled
 * or back in the store; a delivery that the loop was given and did not settle goes back at once.
 */
import { Eventual } from '../eventual.js'
import type { BaseFlow } from './base-flow.js'
import { type DemandSubscription, demand } from './demand.js'
import { deliveriesOf } from './parcel.js'
import { Scope } from './scope.js'

type Result<T> = IteratorResult<T, undefined>

const DONE: Result<never> = { done: true, value: undefined }

export class FlowIterator<T> implements AsyncIterator<T, undefined> {
  private readonly scope = new Scope()
  private readonly waiting: Eventual<Result<T>>[] = []
  private readonly early: T[] = []
  private subscription: DemandSubscription | undefined
  private ended: { readonly error?: unknown } | undefined

  constructor(private readonly flow: BaseFlow<T>) {}

  next(): Promise<Result<T>> {
    const result = new Eventual<Result<T>>()
    if (this.early.length > 0) result.resolve(this.given(this.early.shift() as T))
    else if (this.ended) this.answerEnd(result)
    else this.ask(result)
    return this.flow.clock.promise(result)
  }

  return(): Promise<Result<T>> {
    this.scope.leaveLoop()
    if (!this.ended) {
      this.ended = {}
      this.subscription?.cancel()
    }
    this.early.length = 0
    const result = this.scope.closed().then(() => {
      this.flushEnd()
      return DONE as Result<T>
    })
    return this.flow.clock.promise(result)
  }

  private ask(result: Eventual<Result<T>>): void {
    this.waiting.push(result)
    // After a cancel of the consumer, coming back for more says that the body is done with what it had.
    this.scope.leaveStopped()
    this.scope.run(() => {
      this.subscription ??= this.flow[demand]({
        next: (value) => this.arrive(value),
        error: (error) => this.end({ error }),
        complete: () => this.end({}),
      })
      this.subscription.request(1)
    })
  }

  private arrive(value: T): void {
    const result = this.waiting.shift()
    if (result) result.resolve(this.given(value))
    else this.early.push(value)
  }

  /** What the loop has been given, it has to settle. */
  private given(value: T): Result<T> {
    for (const delivery of deliveriesOf(value)) delivery.held.inLoop = true
    return { done: false, value }
  }

  private end(end: { readonly error?: unknown }): void {
    this.ended ??= end
    this.flushEnd()
  }

  /** The error is told once; whoever asks again is told that it is over. */
  private flushEnd(): void {
    while (this.waiting.length > 0) this.answerEnd(this.waiting.shift() as Eventual<Result<T>>)
  }

  private answerEnd(result: Eventual<Result<T>>): void {
    const end = this.ended
    this.ended = {}
    if (end && 'error' in end) result.reject(end.error)
    else result.resolve(DONE)
  }
}
