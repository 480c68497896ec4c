import type { Observable } from 'rxjs'
import { asFlow } from '../core/base-flow.js'
import { type DeliveryHandle, failQuietly, settleQuietly } from '../core/delivery-handle.js'
import type { Command } from '../core/held-claim.js'
import { backoffMs } from '../core/policy.js'
import { transform } from '../core/transform.js'
import type { Delivery } from '../delivery.js'
import { InvalidOptionError } from '../errors.js'
import type { Flow } from '../flow.js'
import { callable, checkOptions, oneOf } from '../options.js'

/** What becomes of a delivery that does not pass. There is no default: each means something else for the message. */
export interface FilterOptions {
  /**
   * `'ack'`: done with. `'requeue'`: for somebody else, after a growing delay; it counts as an attempt, so that what
   * nobody wants ends in the dead letters. `'dead-letter'`: at once.
   */
  readonly otherwise: 'ack' | 'requeue' | 'dead-letter'
}

const RULES = { otherwise: oneOf('ack', 'requeue', 'dead-letter') }

/**
 * Passes on the deliveries that the predicate accepts and settles the others as `otherwise` says. When the predicate
 * throws, the delivery fails by the policies so far.
 *
 * @example
 * ```ts
 * pipe(orders.source(), filter((d) => d.payload.country === 'CH', { otherwise: 'requeue' }))
 * ```
 */
export function filter<T>(
  predicate: (delivery: Delivery<T>, index: number) => boolean,
  options: FilterOptions,
): (source: Observable<Delivery<T>>) => Flow<Delivery<T>> {
  callable(predicate, 'filter.predicate')
  checkOptions(options, 'filter', RULES)
  if (options?.otherwise === undefined)
    throw new InvalidOptionError('filter.otherwise', undefined, "one of 'ack', 'requeue', 'dead-letter'")
  return (observable) =>
    transform<Delivery<T>, Delivery<T>>(asFlow(observable), (step) => {
      let index = 0
      return (delivery) => {
        const handle = delivery as DeliveryHandle<T>
        let passes: boolean
        try {
          passes = predicate(handle, index++)
        } catch (error) {
          failQuietly(handle, error)
          return step.skip()
        }
        if (passes) return step.emit(handle)
        settleQuietly(handle, command(handle, options.otherwise))
        step.skip()
      }
    })
}

function command<T>(delivery: DeliveryHandle<T>, otherwise: FilterOptions['otherwise']): Command {
  if (otherwise === 'ack') return { kind: 'ack' }
  if (otherwise === 'dead-letter') return { kind: 'dead-letter', reason: 'refused by a filter' }
  const delayMs = backoffMs({}, delivery.attempt, delivery.held.owner.clock.random())
  return { kind: 'requeue', delayMs, countAttempt: true, reason: 'refused by a filter' }
}
