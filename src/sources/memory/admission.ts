import type { EnqueueStatus, NewMessage } from '../../driver.js'
import { LimitError, QueueFullError, UnsupportedError } from '../../errors.js'
import { type Message, sizeOf } from './message.js'
import type { QueueStore } from './store.js'

/** The most messages of one enqueue. */
export const MAX_BATCH = 100_000
/** The most bytes of one enqueue. */
export const MAX_BATCH_BYTES = 512 * 1024 * 1024

/** What admitting a batch will do; made before anything is changed. */
export interface AdmissionPlan {
  /** Which messages are stored; absent when that need not be known beforehand. */
  readonly fresh: readonly boolean[] | undefined
  /** What the stored ones are charged. */
  readonly length: number
  readonly bytes: number
}

/**
 * Checks a batch against all limits without changing anything. `leaving` is a message of the same queue that makes
 * room in the same step.
 */
export function planAdmission(
  store: QueueStore,
  batch: readonly NewMessage[],
  leaving?: Message,
): AdmissionPlan | Error {
  const error = checkMessages(store, batch)
  if (error !== undefined) return error
  let bytes = 0
  for (let index = 0; index < batch.length; index += 1) bytes += sizeOf(batch[index] as NewMessage)
  if (bytes > MAX_BATCH_BYTES) return new LimitError('maxBatchBytes', MAX_BATCH_BYTES, bytes)
  if (exceeded(store, batch.length, bytes, leaving) === undefined)
    return { fresh: undefined, length: batch.length, bytes }
  return planCharged(store, batch, leaving)
}

/** Carries out a plan. Nothing may have changed since it was made. */
export function admit(store: QueueStore, batch: readonly NewMessage[], plan: AdmissionPlan): EnqueueStatus[] {
  clear(store, plan.length, plan.bytes)
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
  if (error === undefined) clear(store, length, bytes)
  return error
}

/** Drops the oldest ready messages until so much fits, which must be possible. What costs nothing drops nothing. */
function clear(store: QueueStore, length: number, bytes: number): void {
  while (length > 0 && exceeded(store, length, bytes) !== undefined) dropOldest(store)
}

function checkMessages(store: QueueStore, batch: readonly NewMessage[]): Error | undefined {
  if (batch.length > MAX_BATCH) return new LimitError('maxBatch', MAX_BATCH, batch.length)
  const { maxPayloadBytes } = store.settings.limits
  for (let index = 0; index < batch.length; index += 1) {
    const { bytes, partition } = batch[index] as NewMessage
    if (bytes.byteLength > maxPayloadBytes) return new LimitError('maxPayloadBytes', maxPayloadBytes, bytes.byteLength)
    if (partition !== undefined) return new UnsupportedError('memory', 'partitions')
  }
  return undefined
}

/** The exact charge, without duplicates. Only made near a bound, as it looks each id up once more. */
function planCharged(store: QueueStore, batch: readonly NewMessage[], leaving?: Message): AdmissionPlan | Error {
  const seen = new Set<string>()
  let bytes = 0
  const fresh = batch.map((message) => {
    if (seen.has(message.id) || store.find(message.id) !== undefined) return false
    seen.add(message.id)
    bytes += sizeOf(message)
    return true
  })
  return fullUnlessDroppable(store, seen.size, bytes, leaving) ?? { fresh, length: seen.size, bytes }
}

/** An error if so much does not fit, not even after dropping what may be dropped. */
function fullUnlessDroppable(
  store: QueueStore,
  length: number,
  bytes: number,
  leaving?: Message,
): QueueFullError | undefined {
  const limit = exceeded(store, length, bytes, leaving)
  if (length === 0 || limit === undefined) return undefined
  if (store.settings.limits.whenFull === 'reject') return full(store, limit)
  const stuck = exceeded(store, length - store.ready.size, bytes - store.ready.bytes, leaving)
  return stuck === undefined ? undefined : full(store, stuck)
}

type Bound = 'maxLength' | 'maxBytes'

function exceeded(store: QueueStore, length: number, bytes: number, leaving?: Message): Bound | undefined {
  const { maxLength, maxBytes } = store.settings.limits
  const goes = leaving === undefined ? 0 : 1
  const goesBytes = leaving === undefined ? 0 : leaving.size
  if (maxLength !== null && store.length + length - goes > maxLength) return 'maxLength'
  if (maxBytes !== null && store.bytes + bytes - goesBytes > maxBytes) return 'maxBytes'
  return undefined
}

function full(store: QueueStore, limit: Bound): QueueFullError {
  return new QueueFullError(store.name, limit, store.settings.limits[limit] ?? 0)
}

function dropOldest(store: QueueStore): void {
  const oldest = store.ready.oldest as Message
  store.lift(oldest)
  store.totals.dropped += 1
  store.forget(oldest)
}
