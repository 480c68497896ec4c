import type { Observable } from 'rxjs'
import type { SinkOptions } from '../core/runner.js'
import type { Delivery } from '../delivery.js'
import type { Summary } from '../events.js'
import { concatMap } from '../operators/concat-map.js'
import { callable } from '../options.js'
import { run } from './run.js'

/**
 * A loop that acks: works on one delivery after the other, acks each when `work` is done and fails it, by the policies
 * of the flow, when that throws. Unlike a `for await` loop it can tell a throw from a break, so a throw is no reason to
 * stop. Otherwise as `run`.
 *
 * @example
 * ```ts
 * await consume(orders.source(), async (d) => ship(d.payload), { signal: shutdown })
 * ```
 */
export function consume<T>(
  source: Observable<Delivery<T>>,
  work: (delivery: Delivery<T>, index: number) => unknown,
  options: SinkOptions = {},
): Promise<Summary> {
  callable(work, 'consume.work')
  return run(concatMap(work)(source), options)
}
