/**
 * The record of a message as the scripts pack it: lua/changes.lua has the same layout.
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
const PRIORITY = 3
const ATTEMPT = 9
const DELIVERIES = 13
const ENQUEUED_AT = 17
const FENCE = 33
const ARRIVED_AT = 41
const AT = 53
const CONSUMER = 61
const CANCEL = 2

export function recordIn(packed: Buffer): MessageRecord {
  const consumerEnd = CONSUMER + 2 + packed.readUInt16BE(CONSUMER)
  const keyEnd = consumerEnd + 4 + packed.readUInt32BE(consumerEnd)
  const headersEnd = keyEnd + 4 + packed.readUInt32BE(keyEnd)
  const record: { -readonly [K in keyof MessageRecord]: MessageRecord[K] } = {
    attempt: packed.readUInt32BE(ATTEMPT),
    deliveryCount: packed.readUInt32BE(DELIVERIES),
    priority: packed.readUInt16BE(PRIORITY),
    enqueuedAt: packed.readDoubleBE(ENQUEUED_AT),
    fence: packed.readDoubleBE(FENCE),
    at: packed.readDoubleBE(AT),
    consumer: packed.toString('utf8', CONSUMER + 2, consumerEnd),
  }
  if (keyEnd > consumerEnd + 4) record.key = packed.toString('utf8', consumerEnd + 4, keyEnd)
  if (headersEnd > keyEnd + 4) record.headers = JSON.parse(packed.toString('utf8', keyEnd + 4, headersEnd))
  return record
}

/** Whether it was cancelled while it was claimed. */
export function isCancelled(packed: Buffer): boolean {
  return (packed.readUInt8(FLAGS) & CANCEL) > 0
}

/** When a delayed message becomes ready. */
export function dueAtIn(packed: Buffer): number {
  return packed.readDoubleBE(ARRIVED_AT)
}
