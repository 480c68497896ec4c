import type { Observable } from 'rxjs'
import type { Handler } from '../core/handler.js'
import { handlerFlow } from '../core/handler-flow.js'
import type { Flow } from '../flow.js'

export interface HandlerOptions {
  /** Keep the handler's last value as the message's outcome. Default false. It must be encodable as JSON. */
  readonly storeResult?: boolean
}

/**
 * Works on up to `n` deliveries at once and settles each when its handler ends: with an ack, with
 * `delivery.fail(error)` when it throws, or not at all when the handler settled it itself.
 *
 * The handler is the one that the `mergeMap` of RxJS takes. It is given a delivery and an index, and returns an
 * Observable, a promise, an async iterable, or a plain value (a string or an array is one value); what it yields is
 * emitted. A failed handler never ends the stream. After `batch` the handler gets an array, and its end settles every
 * member that is not settled yet.
 *
 * On abort the delivery's signal aborts. An Observable is unsubscribed and an async iterable returned then, and the
 * message is released uncounted; a promise has the grace to end by itself.
 *
 * @example
 * ```ts
 * pipe(orders.source(), mergeMap((d) => charge(d.payload, { signal: d.signal }), 8))
 * ```
 */
export function mergeMap<V, R>(
  handler: Handler<V, R>,
  n: number,
  options?: HandlerOptions,
): (source: Observable<V>) => Flow<R> {
  return handlerFlow('mergeMap', handler, n, options, { onValue: (value: R) => value })
}
