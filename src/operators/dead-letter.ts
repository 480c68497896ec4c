import type { Observable } from 'rxjs'
import { deadLetterPolicy } from '../core/policy.js'
import { policyFlow } from '../core/policy-flow.js'
import type { Delivery } from '../delivery.js'
import type { Flow } from '../flow.js'
import { callable, checkOptions, has } from '../options.js'
import type { Queue } from '../queue.js'

export interface DeadLetterOptions<T> {
  /** Another queue that gets the payload. Default: this queue's own dead letters. */
  readonly to?: Queue<T>
  /** Which failures. Default: all that come here. */
  readonly when?: (error: unknown, delivery: Delivery<T>) => boolean
}

const RULES = { to: has('a Queue', 'enqueue', 'source'), when: callable }

/**
 * Failure policy: give up at once. With `to`, the payload moves to that queue in one atomic step where both are on one
 * backend; when that queue refuses it (it is full, say), the message stays here and is tried again later.
 *
 * @example
 * ```ts
 * pipe(orders.source(), deadLetter({ to: refused, when: (error) => error instanceof CardRefused }), mergeMap(charge, 8))
 * ```
 */
export function deadLetter<T = never>(options: DeadLetterOptions<T> = {}): <V>(source: Observable<V>) => Flow<V> {
  checkOptions(options, 'deadLetter', RULES)
  return policyFlow(
    deadLetterPolicy(
      options.to as Queue<never> | undefined,
      options.when as ((error: unknown, delivery: Delivery<unknown>) => boolean) | undefined,
    ),
  )
}
