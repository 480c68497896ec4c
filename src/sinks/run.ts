import type { Observable } from 'rxjs'
import type { SinkOptions } from '../core/runner.js'
import { sink } from '../core/sink.js'
import type { Summary } from '../events.js'

export type { SinkOptions } from '../core/runner.js'

/**
 * Runs a flow until it completes or is stopped, and accounts for every claim.
 *
 * Fulfils with the summary when all consumers behind the flow have given back what they held; also when `signal`
 * stopped it. Rejects, after the same clean-up, when the flow itself failed. Within `drainMs` + `graceMs` + 5 s of the
 * abort it is done.
 *
 * @example
 * ```ts
 * const summary = await run(pipe(orders.source(), mergeMap(charge, 8)), { signal: shutdown, graceMs: 10_000 })
 * ```
 */
export function run(flow: Observable<unknown>, options: SinkOptions = {}): Promise<Summary> {
  return sink('run', flow, options, (summary) => summary)
}
