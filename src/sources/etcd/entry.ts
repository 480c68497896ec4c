/**
 * What changes about a message as it goes from place to place. Its payload, written once, lies under its id; this little
 * record moves with it.
 */
import type { NewMessage } from '../../driver.js'
import { sizeOf } from '../local/admission.js'
import { decode, decodeWithBytes, encode, encodeWithBytes, readable } from './record.js'

export interface Entry {
  readonly id: string
  readonly priority: number
  /** What it costs of `maxBytes`. */
  readonly size: number
  readonly arrivedAt: number
  readonly arrival: string
  readonly attempt: number
  readonly deliveries: number
  /** When its time to live ends; 0 for never. */
  readonly expiresAt: number
  readonly buryExpired: boolean
  /** Why its attempts have failed. */
  readonly errors: readonly string[]
  /** Its place is recorded apart, since it is not the one that it was stored with. */
  readonly moved: boolean
}

type EntryRow = [string, number, number, number, string, number, number, number, 0 | 1, 0 | 1, ...string[]]

export function entryRow(entry: Entry): EntryRow {
  const { id, priority, size, arrivedAt, arrival, attempt, deliveries, expiresAt, buryExpired, errors, moved } = entry
  const flag = (value: boolean) => (value ? 1 : 0)
  return [
    id,
    priority,
    size,
    arrivedAt,
    arrival,
    attempt,
    deliveries,
    expiresAt,
    flag(buryExpired),
    flag(moved),
    ...errors,
  ]
}

export function entryOf(row: EntryRow): Entry {
  const [id, priority, size, arrivedAt, arrival, attempt, deliveries, expiresAt, bury, moved, ...errors] = row
  const buryExpired = bury === 1
  return {
    id,
    priority,
    size,
    arrivedAt,
    arrival,
    attempt,
    deliveries,
    expiresAt,
    buryExpired,
    errors,
    moved: moved === 1,
  }
}

export type { EntryRow }

export function encodeEntry(entry: Entry): Buffer {
  return encode(entryRow(entry))
}

export function decodeEntry(stored: Buffer): Entry {
  return entryOf(decode<EntryRow>(stored, 'a place of the queue'))
}

/** Undefined for what somebody has written by hand, which must not stop a queue. Throws for a newer form. */
export function readableEntry(stored: Buffer): Entry | undefined {
  return readable(() => decodeEntry(stored))
}

/** How a message ended, where that is not a plain ack. */
export interface End {
  readonly state: 'done' | 'dead' | 'cancelled' | 'expired'
  readonly reason?: string
  /** The bytes behind the header are its result. */
  readonly result?: boolean
}

/** What is stored under the id, with the payload. */
export interface Header {
  readonly priority: number
  readonly enqueuedAt: number
  readonly size: number
  /** The key of its first place, without the name of the queue. */
  readonly place: string
  readonly key?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly ttlMs?: number
  readonly end?: End
}

export function encodeMessage(header: Header, bytes: Uint8Array): Buffer {
  return encodeWithBytes(header, bytes)
}

export function decodeMessage(stored: Buffer): { readonly value: Header; readonly bytes: Uint8Array } {
  return decodeWithBytes<Header>(stored, 'a message')
}

/** The header of a message that is stored now. */
export function headerOf(message: NewMessage, enqueuedAt: number, place: string): Header {
  const { priority, key, headers, ttlMs } = message
  return {
    priority,
    enqueuedAt,
    size: sizeOf(message),
    place,
    ...(key !== undefined && { key }),
    ...(headers !== undefined && { headers }),
    ...(ttlMs !== undefined && { ttlMs: Math.ceil(ttlMs) }),
  }
}

/** The entry of a message that is stored now. */
export function entryFor(message: NewMessage, arrivedAt: number, arrival: string, now: number): Entry {
  const { id, priority, ttlMs, whenExpired } = message
  return {
    id,
    priority,
    size: sizeOf(message),
    arrivedAt,
    arrival,
    attempt: 1,
    deliveries: 0,
    expiresAt: ttlMs === undefined ? 0 : now + Math.ceil(ttlMs),
    buryExpired: whenExpired === 'dead-letter',
    errors: [],
    moved: false,
  }
}
