/**
 * Whether a queue has room for a batch: the rules of its limits, for backends that count in this process.
 */
import type { CarriedMessage, NewMessage, SharedSettings } from '../../driver.js'
import { LimitError, QueueFullError, UnsupportedError } from '../../errors.js'

/** What a queue holds, as it is now. */
export interface Room {
  readonly name: string
  readonly settings: SharedSettings
  /** What is ready, delayed or claimed. */
  readonly length: number
  readonly bytes: number
  readonly readyLength: number
  readonly readyBytes: number
  /** Whether a message of this id is held in any state, or its outcome is retained. */
  holds(id: string): boolean
}

/** What a backend takes in one enqueue. */
export interface BatchCaps {
  readonly backend: string
  readonly maxBatch: number
  readonly maxBatchBytes: number
}

/** A message that makes room in the same step. */
export interface Leaving {
  readonly size: number
}

/** What admitting a batch will do; made before anything is changed. */
export interface AdmissionPlan {
  /** Which messages are stored; absent when that need not be known beforehand. */
  readonly fresh: readonly boolean[] | undefined
  /** What the stored ones are charged. */
  readonly length: number
  readonly bytes: number
}

/** Checks a batch against all limits, without changing anything. */
export function planAdmission(
  room: Room,
  batch: readonly NewMessage[],
  caps: BatchCaps,
  leaving?: Leaving,
): AdmissionPlan | Error {
  const error = checkMessages(room, batch, caps)
  if (error !== undefined) return error
  let bytes = 0
  for (let index = 0; index < batch.length; index += 1) bytes += sizeOf(batch[index] as NewMessage)
  if (bytes > caps.maxBatchBytes) return new LimitError('maxBatchBytes', caps.maxBatchBytes, bytes)
  if (exceeded(room, batch.length, bytes, leaving) === undefined)
    return { fresh: undefined, length: batch.length, bytes }
  return planCharged(room, batch, leaving)
}

/** An error if so much does not fit, not even after dropping what may be dropped. */
export function fullUnlessDroppable(
  room: Room,
  length: number,
  bytes: number,
  leaving?: Leaving,
): QueueFullError | undefined {
  const bound = exceeded(room, length, bytes, leaving)
  if (length === 0 || bound === undefined) return undefined
  if (room.settings.limits.whenFull === 'reject') return full(room, bound)
  const stuck = exceeded(room, length - room.readyLength, bytes - room.readyBytes, leaving)
  return stuck === undefined ? undefined : full(room, stuck)
}

/** Drops the oldest ready messages until so much fits, which must be possible. What costs nothing drops nothing. */
export function clear(room: Room, length: number, bytes: number, dropOldest: () => void): void {
  while (length > 0 && exceeded(room, length, bytes) !== undefined) dropOldest()
}

/** What a message is charged with: its payload and its headers in bytes. */
export function sizeOf({ bytes, headers }: NewMessage): number {
  return headers === undefined ? bytes.byteLength : bytes.byteLength + headerBytes(headers)
}

/** The messages that a settlement carries, by the queue that they are for. */
export function byQueue(carried: readonly CarriedMessage[]): Map<string, NewMessage[]> {
  const batches = new Map<string, NewMessage[]>()
  for (const { queue, message } of carried) {
    const batch = batches.get(queue)
    if (batch === undefined) batches.set(queue, [message])
    else batch.push(message)
  }
  return batches
}

function checkMessages(room: Room, batch: readonly NewMessage[], caps: BatchCaps): Error | undefined {
  if (batch.length > caps.maxBatch) return new LimitError('maxBatch', caps.maxBatch, batch.length)
  const { maxPayloadBytes } = room.settings.limits
  for (let index = 0; index < batch.length; index += 1) {
    const { bytes, partition } = batch[index] as NewMessage
    if (bytes.byteLength > maxPayloadBytes) return new LimitError('maxPayloadBytes', maxPayloadBytes, bytes.byteLength)
    if (partition !== undefined) return new UnsupportedError(caps.backend, 'partitions')
  }
  return undefined
}

/** The exact charge, without duplicates. Only made near a bound, as it looks each id up once more. */
function planCharged(room: Room, batch: readonly NewMessage[], leaving?: Leaving): AdmissionPlan | Error {
  const seen = new Set<string>()
  let bytes = 0
  const fresh = batch.map((message) => {
    if (seen.has(message.id) || room.holds(message.id)) return false
    seen.add(message.id)
    bytes += sizeOf(message)
    return true
  })
  return fullUnlessDroppable(room, seen.size, bytes, leaving) ?? { fresh, length: seen.size, bytes }
}

type Bound = 'maxLength' | 'maxBytes'

function exceeded(room: Room, length: number, bytes: number, leaving?: Leaving): Bound | undefined {
  const { maxLength, maxBytes } = room.settings.limits
  const goes = leaving === undefined ? 0 : 1
  const goesBytes = leaving === undefined ? 0 : leaving.size
  if (maxLength !== null && room.length + length - goes > maxLength) return 'maxLength'
  if (maxBytes !== null && room.bytes + bytes - goesBytes > maxBytes) return 'maxBytes'
  return undefined
}

function full(room: Room, bound: Bound): QueueFullError {
  return new QueueFullError(room.name, bound, room.settings.limits[bound] ?? 0)
}

function headerBytes(headers: Readonly<Record<string, string>>): number {
  let total = 0
  for (const [name, value] of Object.entries(headers)) total += Buffer.byteLength(name) + Buffer.byteLength(value)
  return total
}
