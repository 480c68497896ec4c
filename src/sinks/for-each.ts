import type { Observable } from 'rxjs'
import type { SinkOptions } from '../core/runner.js'
import { sink } from '../core/sink.js'
import { callable } from '../options.js'

/**
 * Calls `work` with each value, one after the other: the next is asked for when the promise it returned is fulfilled.
 *
 * Fulfils when the flow has completed or was stopped. Rejects with what `work` throws; a delivery it was given and did
 * not settle then goes back at once, counted as an attempt.
 *
 * @example
 * ```ts
 * await forEach(pipe(orders.source(), process(charge, 8)), ({ outcome, delivery }) => log(outcome, delivery.id))
 * ```
 */
export function forEach<T>(
  flow: Observable<T>,
  work: (value: T, index: number) => unknown,
  options: SinkOptions = {},
): Promise<void> {
  callable(work, 'forEach.work')
  return sink('forEach', flow, options, () => undefined, { each: work })
}
