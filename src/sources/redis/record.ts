/**
 * The record of a message as the scripts pack it: lua/head.lua has the same layout.
 */

export interface MessageRecord {
  readonly attempt: number
  readonly deliveryCount: number
  readonly priority: number
  readonly enqueuedAt: number
  readonly fence: number
  /** The instant that goes with its state. */
  readonly at: number
  readonly consumer: string
  readonly key?: string
  readonly headers?: { readonly [name: string]: string }
}

const FLAGS = 1
const DELIVERIES = 7
const FENCE = 11
const AT = 19
const CONSUMER = 27
const CANCEL = 2
/** From the end of the consumer on. */
const ARRIVAL = 8
const ARRIVED_AT_DIGITS = 11
const PRIORITY = 27
const ATTEMPT = 29
const ENQUEUED_AT = 33
const KEY = 41

export function recordIn(packed: Buffer): MessageRecord {
  const lasting = lastingIn(packed)
  const keyAt = lasting + KEY
  const keyEnd = keyAt + 4 + packed.readUInt32BE(keyAt)
  const headersEnd = keyEnd + 4 + packed.readUInt32BE(keyEnd)
  const record: { -readonly [K in keyof MessageRecord]: MessageRecord[K] } = {
    attempt: packed.readUInt32BE(lasting + ATTEMPT),
    deliveryCount: packed.readUInt32BE(DELIVERIES),
    priority: packed.readUInt16BE(lasting + PRIORITY),
    enqueuedAt: packed.readDoubleBE(lasting + ENQUEUED_AT),
    fence: packed.readDoubleBE(FENCE),
    at: packed.readDoubleBE(AT),
    consumer: packed.toString('utf8', CONSUMER + 2, lasting),
  }
  if (keyEnd > keyAt + 4) record.key = packed.toString('utf8', keyAt + 4, keyEnd)
  if (headersEnd > keyEnd + 4) record.headers = JSON.parse(packed.toString('utf8', keyEnd + 4, headersEnd))
  return record
}

/** Where that part of a record begins which stays as it is when the message moves. */
function lastingIn(packed: Buffer): number {
  return CONSUMER + 2 + packed.readUInt16BE(CONSUMER)
}

/** Whether it was cancelled while it was claimed. */
export function isCancelled(packed: Buffer): boolean {
  return (packed.readUInt8(FLAGS) & CANCEL) > 0
}

/** When a delayed message becomes ready. */
export function dueAtIn(packed: Buffer): number {
  const from = lastingIn(packed) + ARRIVAL
  return Number.parseInt(packed.toString('latin1', from, from + ARRIVED_AT_DIGITS), 16)
}
