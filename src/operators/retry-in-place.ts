import type { Observable } from 'rxjs'
import type { Backoff } from '../core/policy.js'
import { againPolicy } from '../core/policy.js'
import { policyFlow } from '../core/policy-flow.js'
import { backoffRules } from '../core/rules.js'
import { InvalidOptionError } from '../errors.js'
import type { Flow } from '../flow.js'
import { checkOptions, integer } from '../options.js'

export interface RetryInPlaceOptions extends Backoff {
  /** How often the handler is run again. */
  readonly times: number
}

const RULES = { ...backoffRules, times: integer(1) }

/**
 * Failure policy: run the handler again under the same claim, after a pause (default: none). The lane stays taken and
 * the attempt does not count, so keep it short; after `times` the next policy is asked.
 *
 * A delivery that is failed by hand (`delivery.fail`) has no handler to run again: it goes to the next policy.
 *
 * @example
 * ```ts
 * pipe(orders.source(), retryLater(), retryInPlace({ times: 2, baseMs: 50 }), mergeMap(charge, 8))
 * ```
 */
export function retryInPlace(options: RetryInPlaceOptions): <V>(source: Observable<V>) => Flow<V> {
  checkOptions(options, 'retryInPlace', RULES)
  if (options?.times === undefined)
    throw new InvalidOptionError('retryInPlace.times', undefined, 'a whole number of 1 or more')
  return policyFlow(againPolicy(options.times, options))
}
