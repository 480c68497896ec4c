import type { Observable } from 'rxjs'
import { type Backoff, backoffMs, laterPolicy } from '../core/policy.js'
import { policyFlow } from '../core/policy-flow.js'
import { checkBackoff } from '../core/rules.js'
import type { Flow } from '../flow.js'

export type { Backoff } from '../core/policy.js'

/**
 * Failure policy: requeue with a growing delay. The lane is free at once; the attempt counts towards `maxDeliveries`,
 * and the message is a dead letter when those are used up.
 *
 * Takes a backoff, or a function of the attempt that failed (from 1) and its error to a delay in milliseconds. Stands
 * before the handler; of several policies the one nearest the handler is asked first.
 *
 * @example
 * ```ts
 * pipe(orders.source(), retryLater({ baseMs: 1_000, factor: 2, maxMs: 60_000 }), mergeMap(charge, 8))
 * ```
 */
export function retryLater(
  backoff: Backoff | ((attempt: number, error: unknown) => number) = {},
): <V>(source: Observable<V>) => Flow<V> {
  checkBackoff(backoff, 'retryLater')
  const delayMs =
    typeof backoff === 'function'
      ? backoff
      : (attempt: number, _error: unknown, random: number) => backoffMs(backoff, attempt, random)
  return policyFlow(laterPolicy(delayMs))
}
