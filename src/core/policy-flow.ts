import type { Observable } from 'rxjs'
import type { Flow } from '../flow.js'
import { asFlow } from './base-flow.js'
import { deliveriesOf } from './parcel.js'
import type { Policy } from './policy.js'
import { transform } from './transform.js'

/** An operator that gives each delivery, or each member of a batch, one more failure policy. */
export function policyFlow(policy: Policy): <V>(source: Observable<V>) => Flow<V> {
  return <V>(observable: Observable<V>) =>
    transform<V, V>(asFlow(observable), (step) => (value) => {
      for (const delivery of deliveriesOf(value)) delivery.addPolicy(policy)
      step.emit(value)
    })
}
