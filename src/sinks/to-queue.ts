import type { Observable } from 'rxjs'
import type { SinkOptions } from '../core/runner.js'
import type { Delivery } from '../delivery.js'
import type { Summary } from '../events.js'
import { concatMap } from '../operators/concat-map.js'
import { callable, has } from '../options.js'
import type { Queue } from '../queue.js'
import { run } from './run.js'

/**
 * Forwards each delivery to another queue: acked here and enqueued there, in one atomic step on one backend. `map`
 * makes the payload; when it throws, or the other queue refuses, the delivery fails by the policies of the flow.
 * Otherwise as `run`.
 *
 * @example
 * ```ts
 * await toQueue(orders.source(), shipments, ({ payload }) => ({ sku: payload.sku }), { signal: shutdown })
 * ```
 */
export function toQueue<T>(source: Observable<Delivery<T>>, queue: Queue<T>): Promise<Summary>
export function toQueue<T, U>(
  source: Observable<Delivery<T>>,
  queue: Queue<U>,
  map: (delivery: Delivery<T>) => U,
  options?: SinkOptions,
): Promise<Summary>
export function toQueue<T, U>(
  source: Observable<Delivery<T>>,
  queue: Queue<U>,
  map?: (delivery: Delivery<T>) => U,
  options: SinkOptions = {},
): Promise<Summary> {
  has('a Queue', 'enqueue', 'source')(queue, 'toQueue.queue')
  if (map !== undefined) callable(map, 'toQueue.map')
  const payloadOf = map ?? (({ payload }: Delivery<T>) => payload as unknown as U)
  return run(concatMap((delivery: Delivery<T>) => delivery.forward(queue, payloadOf(delivery)))(source), options)
}
