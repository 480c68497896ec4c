/**
 * The deliveries that a value of a stream is or holds: a delivery, a batch of them, or none.
 */
import { DeliveryHandle } from './delivery-handle.js'

export function deliveriesOf(value: unknown): readonly DeliveryHandle<unknown>[] {
  if (value instanceof DeliveryHandle) return [value]
  if (Array.isArray(value) && value.length > 0 && value.every((item) => item instanceof DeliveryHandle)) return value
  return NONE
}

const NONE: readonly DeliveryHandle<unknown>[] = []
