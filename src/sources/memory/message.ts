import type { NewMessage } from '../../driver.js'

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

const NO_BYTES: Uint8Array = new Uint8Array(0)

/**
 * One message, from its enqueue until its outcome is forgotten; then the record serves another message.
 *
 * All fields are set by the constructor and in one order, so that all messages share one shape.
 */
export class Message {
  id = ''
  /** By which its id is found. */
  idHash = 0
  bytes = NO_BYTES
  /** What it costs of `maxBytes`. */
  size = 0
  priority = 0
  key: string | undefined = undefined
  headers: Readonly<Record<string, string>> | undefined = undefined
  enqueuedAt = 0
  /** With `arrival` its place in the queue. For a delayed message it is the instant when it becomes ready. */
  arrivedAt = 0
  arrival = 0
  ttlMs = NEVER
  expiresAt = NEVER
  buryExpired = false
  state: MessageState = 'forgotten'
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
}

/** Fills a record that serves nobody. */
export function fill(message: Message, source: NewMessage, idHash: number, size: number, now: number): void {
  message.id = source.id
  message.idHash = idHash
  message.bytes = source.bytes
  message.size = size
  message.priority = source.priority
  message.key = source.key
  message.headers = source.headers
  message.enqueuedAt = now
  message.ttlMs = source.ttlMs === undefined ? NEVER : Math.ceil(source.ttlMs)
  message.expiresAt = NEVER
  message.buryExpired = source.whenExpired === 'dead-letter'
  message.attempt = 1
  message.deliveryCount = 0
  message.taken = false
  message.cancelRequested = false
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
  message.key = undefined
  message.headers = undefined
  message.token = ''
  message.consumer = ''
  message.notes = undefined
}
