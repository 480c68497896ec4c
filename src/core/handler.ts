/**
 * Runs a handler once and listens to what it gives back.
 */
import { from, isObservable, type Observable } from 'rxjs'
import { isThenable } from '../eventual.js'

/** What a handler may give back: a stream of values, one to come, or one that is there (a string or an array is one). */
export type HandlerResult<R> = Observable<R> | PromiseLike<R> | AsyncIterable<R> | R

/** Works on one value of a stream. The same function that the `mergeMap` of RxJS takes. */
export type Handler<V, R> = (value: V, index: number) => HandlerResult<R>

/** Told what a handler does. Exactly one of `last`, `done` and `failed` is called, unless it is interrupted first. */
export interface HandlerListener<R> {
  value(value: R): void
  /** A value, and the end. */
  last(value: R): void
  done(): void
  failed(error: unknown): void
}

/** Ends a handler that can be ended: an Observable is unsubscribed, an iterator returned. Undefined for a promise. */
export type Interrupt = (() => void) | undefined

export function runHandler<V, R>(
  handler: Handler<V, R>,
  value: V,
  index: number,
  listener: HandlerListener<R>,
): Interrupt {
  let result: HandlerResult<R>
  try {
    result = handler(value, index)
  } catch (error) {
    listener.failed(error)
    return undefined
  }
  if (isObservable(result)) return observe(result as Observable<R>, listener)
  if (isThenable(result)) return follow(result as PromiseLike<R>, listener)
  if (isAsyncIterable(result)) return iterate(result as AsyncIterable<R>, listener)
  if (isInterop(result)) return observe(from(result as unknown as Observable<R>), listener)
  listener.last(result as R)
  return undefined
}

function observe<R>(observable: Observable<R>, listener: HandlerListener<R>): Interrupt {
  const subscription = observable.subscribe({
    next: (value) => listener.value(value),
    error: (error) => listener.failed(error),
    complete: () => listener.done(),
  })
  return () => subscription.unsubscribe()
}

function follow<R>(promise: PromiseLike<R>, listener: HandlerListener<R>): Interrupt {
  promise.then(
    (value) => listener.last(value),
    (error) => listener.failed(error),
  )
  return undefined
}

function iterate<R>(iterable: AsyncIterable<R>, listener: HandlerListener<R>): Interrupt {
  let iterator: AsyncIterator<R>
  let interrupted = false
  const step = () => {
    iterator.next().then(
      ({ done, value }) => {
        if (interrupted) return
        if (done) return listener.done()
        listener.value(value)
        if (!interrupted) step()
      },
      (error) => !interrupted && listener.failed(error),
    )
  }
  try {
    iterator = iterable[Symbol.asyncIterator]()
    step()
  } catch (error) {
    listener.failed(error)
    return undefined
  }
  return () => {
    interrupted = true
    iterator.return?.().then(nothing, nothing)
  }
}

function isAsyncIterable(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value
}

/** Observables of other libraries. */
function isInterop(value: unknown): boolean {
  const symbol = (Symbol as { observable?: symbol }).observable ?? '@@observable'
  return typeof value === 'object' && value !== null && symbol in value
}

function nothing(): void {}
