import type { Observable } from 'rxjs'
import { asFlow } from '../core/base-flow.js'
import { type DeliveryHandle, failQuietly } from '../core/delivery-handle.js'
import { transform } from '../core/transform.js'
import type { Delivery } from '../delivery.js'
import type { Flow } from '../flow.js'
import { callable } from '../options.js'

/**
 * Replaces the payload; the claim stays the same. When `map` throws, the delivery fails by the policies so far, and
 * the stream goes on.
 *
 * @example
 * ```ts
 * pipe(orders.source(), mapPayload((order) => order.sku), mergeMap((d) => reserve(d.payload), 4))
 * ```
 */
export function mapPayload<T, R>(
  map: (payload: T, delivery: Delivery<T>) => R,
): (source: Observable<Delivery<T>>) => Flow<Delivery<R>> {
  callable(map, 'mapPayload.map')
  return (observable) =>
    transform<Delivery<T>, Delivery<R>>(asFlow(observable), (step) => (delivery) => {
      const handle = delivery as DeliveryHandle<T>
      let payload: R
      try {
        payload = map(handle.payload, handle)
      } catch (error) {
        failQuietly(handle, error)
        return step.skip()
      }
      step.emit(handle.with(payload))
    })
}
