/**
 * The plumbing of operators that pass values on one by one.
 */
import { type BaseFlow, DerivedFlow } from './base-flow.js'
import { type DemandObserver, type DemandSubscription, demand } from './demand.js'

/** What a step does with each value: emit something for it, or settle it and ask for another in its place. */
export interface Step<R> {
  emit(value: R): void
  /** The value was used up without an emission. */
  skip(): void
}

/** A flow whose every value went through `work`. Demand passes through unchanged. */
export function transform<T, R>(source: BaseFlow<T>, start: (step: Step<R>) => (value: T) => void): DerivedFlow<R> {
  return new DerivedFlow(source.clock, (observer) => connect(source, start, observer))
}

function connect<T, R>(
  source: BaseFlow<T>,
  start: (step: Step<R>) => (value: T) => void,
  observer: DemandObserver<R>,
): DemandSubscription {
  let unlimited = false
  const work = start({
    emit: (value) => observer.next(value),
    // With unlimited demand the source counts by settlements, so a value that is settled is replaced by itself.
    skip: () => unlimited || upstream.request(1),
  })
  const upstream = source[demand]({
    next: work,
    error: (error) => observer.error(error),
    complete: () => observer.complete(),
  })
  return {
    request: (n) => {
      unlimited ||= n === Number.POSITIVE_INFINITY
      upstream.request(n)
    },
    foresee: (n) => upstream.foresee?.(n),
    cancel: () => upstream.cancel(),
  }
}
