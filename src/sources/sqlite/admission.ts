import type { EnqueueStatus, NewMessage } from '../../driver.js'
import { LimitError, QueueFullError, UnsupportedError } from '../../errors.js'
import { oldestReady } from './inspection.js'
import { add, find, forget, lift, type Message } from './message.js'
import type { QueueRow } from './queue-row.js'
import type { Transaction } from './transaction.js'

/** The most messages of one enqueue: what one transaction stores without stopping the process for long. */
export const MAX_BATCH = 10_000
/** The most bytes of one enqueue. */
export const MAX_BATCH_BYTES = 64 * 1024 * 1024

/** What admitting a batch will do; made before anything is changed. */
export interface AdmissionPlan {
  /** What each message is charged. */
  readonly sizes: readonly number[]
  /** Which messages are stored; absent when that need not be known beforehand. */
  readonly fresh?: readonly boolean[]
  /** What the stored ones are charged together. */
  readonly length: number
  readonly bytes: number
}

/**
 * Checks a batch against all limits without changing anything. `leaving` is a message of the same queue that makes
 * room in the same step. Throws what refuses the batch.
 */
export function planAdmission(
  tx: Transaction,
  queue: QueueRow,
  batch: readonly NewMessage[],
  leaving?: Message,
): AdmissionPlan {
  checkMessages(queue, batch)
  const sizes = batch.map(sizeOf)
  const bytes = sizes.reduce((sum, size) => sum + size, 0)
  if (bytes > MAX_BATCH_BYTES) throw new LimitError('maxBatchBytes', MAX_BATCH_BYTES, bytes)
  if (exceeded(queue, batch.length, bytes, leaving) === undefined) return { sizes, length: batch.length, bytes }
  return planCharged(tx, queue, batch, sizes, leaving)
}

/** Carries out a plan. Nothing may have changed since it was made. */
export function admit(
  tx: Transaction,
  queue: QueueRow,
  batch: readonly NewMessage[],
  plan: AdmissionPlan,
): EnqueueStatus[] {
  clear(tx, queue, plan.length, plan.bytes)
  return batch.map((message, index) => {
    const wanted = plan.fresh === undefined || plan.fresh[index] === true
    return wanted && add(tx, queue, message, plan.sizes[index] as number) ? 'enqueued' : 'duplicate'
  })
}

/** Makes room for messages that come back into the charged states, or throws. */
export function makeRoom(tx: Transaction, queue: QueueRow, length: number, bytes: number): void {
  refuseUnlessDroppable(queue, length, bytes)
  clear(tx, queue, length, bytes)
}

/** Drops the oldest ready messages until so much fits, which must be possible. What costs nothing drops nothing. */
function clear(tx: Transaction, queue: QueueRow, length: number, bytes: number): void {
  while (length > 0 && exceeded(queue, length, bytes) !== undefined) {
    const oldest = oldestReady(tx, queue)
    if (oldest === undefined) return
    lift(queue, oldest)
    queue.counters.droppedTotal += 1
    forget(tx, queue, oldest)
  }
}

function checkMessages(queue: QueueRow, batch: readonly NewMessage[]): void {
  if (batch.length > MAX_BATCH) throw new LimitError('maxBatch', MAX_BATCH, batch.length)
  const { maxPayloadBytes } = queue.settings.limits
  for (const { bytes, partition } of batch) {
    if (bytes.byteLength > maxPayloadBytes) throw new LimitError('maxPayloadBytes', maxPayloadBytes, bytes.byteLength)
    if (partition !== undefined) throw new UnsupportedError('sqlite', 'partitions')
  }
}

/** The exact charge, without duplicates. Only made near a bound, as it looks each id up once more. */
function planCharged(
  tx: Transaction,
  queue: QueueRow,
  batch: readonly NewMessage[],
  sizes: readonly number[],
  leaving?: Message,
): AdmissionPlan {
  const seen = new Set<string>()
  let bytes = 0
  const fresh = batch.map(({ id }, index) => {
    if (seen.has(id) || find(tx, queue, id) !== undefined) return false
    seen.add(id)
    bytes += sizes[index] as number
    return true
  })
  refuseUnlessDroppable(queue, seen.size, bytes, leaving)
  return { sizes, fresh, length: seen.size, bytes }
}

/** Throws if so much does not fit, not even after dropping what may be dropped. */
function refuseUnlessDroppable(queue: QueueRow, length: number, bytes: number, leaving?: Message): void {
  const bound = exceeded(queue, length, bytes, leaving)
  if (length === 0 || bound === undefined) return
  if (queue.settings.limits.whenFull === 'reject') throw full(queue, bound)
  const stuck = exceeded(queue, length - queue.counters.ready, bytes - queue.counters.readyBytes, leaving)
  if (stuck !== undefined) throw full(queue, stuck)
}

type Bound = 'maxLength' | 'maxBytes'

function exceeded(queue: QueueRow, length: number, bytes: number, leaving?: Message): Bound | undefined {
  const { maxLength, maxBytes } = queue.settings.limits
  const goes = leaving === undefined ? 0 : 1
  const goesBytes = leaving === undefined ? 0 : leaving.size
  if (maxLength !== null && queue.length + length - goes > maxLength) return 'maxLength'
  if (maxBytes !== null && queue.counters.bytes + bytes - goesBytes > maxBytes) return 'maxBytes'
  return undefined
}

function full(queue: QueueRow, bound: Bound): QueueFullError {
  return new QueueFullError(queue.name, bound, queue.settings.limits[bound] ?? 0)
}

/** What a message is charged with: its payload and its headers in bytes. */
function sizeOf({ bytes, headers }: NewMessage): number {
  if (headers === undefined) return bytes.byteLength
  return Object.entries(headers).reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    bytes.byteLength,
  )
}
