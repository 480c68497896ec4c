import type { Observable } from 'rxjs'
import type { SinkOptions } from '../core/runner.js'
import { sink } from '../core/sink.js'
import type { Summary } from '../events.js'

/**
 * Runs a flow until its sources are empty: nothing is ready and nothing of its own is in flight. Otherwise as `run`.
 *
 * @example
 * ```ts
 * await drain(pipe(orders.source(), mergeMap(charge, 8)))
 * ```
 */
export function drain(flow: Observable<unknown>, options: SinkOptions = {}): Promise<Summary> {
  return sink('drain', flow, options, (summary) => summary, { until: 'empty' })
}
