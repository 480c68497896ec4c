import type { NewMessage } from '../../driver.js'
import type { Rank } from './ready-set.js'

/** Stands for "no instant" where one may be absent; a number, so that the field keeps one representation. */
export const NEVER = -1

/** Where a message is. */
export type MessageState = 'ready' | 'delayed' | 'claimed' | 'dead' | EndState | 'forgotten'

/** How a message can end. Its id is taken as long as that is retained. */
export type EndState = 'done' | 'dead-elsewhere' | 'cancelled' | 'expired'

/** What only few messages have; made when first needed. */
export interface Notes {
  errors: string[]
  /** Why it is dead. */
  reason: string
  /** Attempts that were made when it died. */
  attempts: number
  deadAt: number
  /** Its number in the log of dead letters. */
  deathNumber: number
  progress: Uint8Array | undefined
  result: Uint8Array | undefined
}

const NO_BYTES = new Uint8Array(0)

/**
 * One message, from its enqueue until its outcome is forgotten.
 *
 * All fields are set by the constructor and in one order, so that all messages share one shape.
 */
export class Message {
  readonly id: string
  bytes: Uint8Array
  /** What it costs of `maxBytes`. */
  readonly size: number
  readonly priority: number
  readonly key: string | undefined
  headers: Readonly<Record<string, string>> | undefined
  readonly rank: Rank
  readonly enqueuedAt: number
  /** With `arrival` its place in the queue. For a delayed message it is the instant when it becomes ready. */
  arrivedAt: number
  arrival: number
  readonly ttlMs: number
  expiresAt: number
  readonly buryExpired: boolean
  state: MessageState = 'ready'
  attempt = 1
  deliveryCount = 0
  /** When the agenda looks at it: the end of its lease while it is claimed, else of its time to live. */
  instant = NEVER
  /** Its index in the agenda, -1 when it is not there. */
  heapIndex = -1
  token = ''
  fence = 0
  consumer = ''
  taken = false
  cancelRequested = false
  watched = false
  endedAt = 0
  notes: Notes | undefined = undefined

  constructor(source: NewMessage, size: number, rank: Rank, now: number, expiresAt: number) {
    this.id = source.id
    this.bytes = source.bytes
    this.size = size
    this.priority = source.priority
    this.key = source.key
    this.headers = source.headers
    this.rank = rank
    this.enqueuedAt = now
    this.arrivedAt = now
    this.arrival = 0
    this.ttlMs = source.ttlMs ?? NEVER
    this.expiresAt = expiresAt
    this.buryExpired = source.whenExpired === 'dead-letter'
  }
}

/** The notes of a message, made now if there are none. */
export function notesOf(message: Message): Notes {
  message.notes ??= {
    errors: [],
    reason: '',
    attempts: 0,
    deadAt: 0,
    deathNumber: 0,
    progress: undefined,
    result: undefined,
  }
  return message.notes
}

/** Lets go of what a finished message no longer needs. */
export function strip(message: Message): void {
  message.bytes = NO_BYTES
  message.headers = undefined
  message.token = ''
  message.consumer = ''
  message.notes = undefined
}

/** What a message is charged with: its payload and its headers in bytes. */
export function sizeOf(message: NewMessage): number {
  const size = message.bytes.byteLength
  return message.headers === undefined ? size : size + headerBytes(message.headers)
}

function headerBytes(headers: Readonly<Record<string, string>>): number {
  let total = 0
  for (const [name, value] of Object.entries(headers)) total += Buffer.byteLength(name) + Buffer.byteLength(value)
  return total
}
