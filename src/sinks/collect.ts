import type { Observable } from 'rxjs'
import type { SinkOptions } from '../core/runner.js'
import { sink } from '../core/sink.js'

/**
 * Gathers every value of a flow until it completes or is stopped. Rejects when the flow fails.
 *
 * @example
 * ```ts
 * const receipts = await collect(pipe(orders.source({ until: 'empty' }), mergeMap(charge, 8)))
 * ```
 */
export function collect<T>(flow: Observable<T>, options: SinkOptions = {}): Promise<T[]> {
  const values: T[] = []
  return sink('collect', flow, options, () => values, { each: (value: T) => void values.push(value) })
}
