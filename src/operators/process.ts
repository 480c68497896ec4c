import type { Observable } from 'rxjs'
import type { DeliveryHandle } from '../core/delivery-handle.js'
import type { HandlerResult } from '../core/handler.js'
import { handlerFlow } from '../core/handler-flow.js'
import type { Delivery } from '../delivery.js'
import type { SettledAs } from '../events.js'
import type { Flow } from '../flow.js'
import type { HandlerOptions } from './merge-map.js'

/** How one delivery ended. */
export interface Processed<T, R> {
  readonly outcome: SettledAs
  readonly delivery: Delivery<T>
  /** The handler's last value. */
  readonly value?: R
  /** Why it failed. */
  readonly error?: unknown
}

/**
 * Works like `mergeMap`, and emits how every delivery ended, once that is confirmed, instead of what the handler
 * yields.
 *
 * @example
 * ```ts
 * pipe(orders.source(), process((d) => charge(d.payload), 8)).subscribe(({ outcome, delivery }) => log(outcome, delivery.id))
 * ```
 */
export function process<T, R>(
  handler: (delivery: Delivery<T>, index: number) => HandlerResult<R>,
  n: number,
  options?: HandlerOptions,
): (source: Observable<Delivery<T>>) => Flow<Processed<T, R>> {
  return handlerFlow<Delivery<T>, R, Processed<T, R>>('process', handler, n, options, {
    onSettled: ({ delivery, as, value, error }) => ({
      outcome: as,
      delivery: delivery as DeliveryHandle<T>,
      ...(value !== undefined && { value }),
      ...(error !== undefined && { error }),
    }),
  })
}
