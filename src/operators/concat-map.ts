import type { Observable } from 'rxjs'
import type { Handler } from '../core/handler.js'
import { handlerFlow } from '../core/handler-flow.js'
import type { Flow } from '../flow.js'
import type { HandlerOptions } from './merge-map.js'

/**
 * Works on one delivery after the other: the next is claimed when the last is settled. Otherwise as `mergeMap`.
 *
 * @example
 * ```ts
 * pipe(ledger.source(), concatMap((d) => book(d.payload)))
 * ```
 */
export function concatMap<V, R>(handler: Handler<V, R>, options?: HandlerOptions): (source: Observable<V>) => Flow<R> {
  return handlerFlow('concatMap', handler, 1, options, { onValue: (value: R) => value })
}
