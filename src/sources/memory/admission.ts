import type { EnqueueStatus, NewMessage } from '../../driver.js'
import type { QueueFullError } from '../../errors.js'
import {
  type AdmissionPlan,
  type BatchCaps,
  clear,
  fullUnlessDroppable,
  type Leaving,
  planAdmission as planFor,
} from '../local/admission.js'
import type { Message } from './message.js'
import type { QueueStore } from './store.js'

export const CAPS: BatchCaps = { backend: 'memory', maxBatch: 100_000, maxBatchBytes: 512 * 1024 * 1024 }

/** Checks a batch against all limits without changing anything. */
export function planAdmission(
  store: QueueStore,
  batch: readonly NewMessage[],
  leaving?: Leaving,
): AdmissionPlan | Error {
  return planFor(store, batch, CAPS, leaving)
}

/** Carries out a plan. Nothing may have changed since it was made. */
export function admit(store: QueueStore, batch: readonly NewMessage[], plan: AdmissionPlan): EnqueueStatus[] {
  clear(store, plan.length, plan.bytes, () => dropOldest(store))
  const statuses = new Array<EnqueueStatus>(batch.length)
  for (let index = 0; index < batch.length; index += 1) {
    const wanted = plan.fresh === undefined || plan.fresh[index] === true
    statuses[index] = wanted && store.add(batch[index] as NewMessage) ? 'enqueued' : 'duplicate'
  }
  return statuses
}

/** Makes room for messages that come back into the charged states; an error if there is none. */
export function makeRoom(store: QueueStore, length: number, bytes: number): QueueFullError | undefined {
  const error = fullUnlessDroppable(store, length, bytes)
  if (error === undefined) clear(store, length, bytes, () => dropOldest(store))
  return error
}

function dropOldest(store: QueueStore): void {
  const oldest = store.ready.oldest as Message
  store.lift(oldest)
  store.totals.dropped += 1
  store.forget(oldest)
}
