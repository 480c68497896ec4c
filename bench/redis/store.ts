/** What the Redis bench asks of each contender. */
import type { Consume, Payload } from '../messages.js'

/** Where the server is. */
export interface Address {
  readonly host: string
  readonly port: number
}

/** For all who have leases or locks. */
export const LEASE_MS = 30_000

/** Its signal aborts when the consumer is stopped while it runs. */
export type AbortableHandler<T> = (work: T, signal: AbortSignal) => Promise<void>

/** One queue. */
export interface Store {
  /** One message in a call of its own. */
  enqueue(payload: Payload): Promise<unknown>
  /** All in one call, or in one pipeline. */
  enqueueAll(payloads: readonly Payload[]): Promise<unknown>
  /** Up to `size` handlers at once. Each message is acked when its handler ends. */
  readonly consume: Consume<Payload>
  /** The same with signals for the handlers, by those who have them. */
  readonly consumeAbortably?: Consume<Payload, AbortableHandler<Payload>>
  /** One handler at a time, for up to `size` messages, by those who can. */
  readonly consumeBatches?: Consume<readonly Payload[]>
  /** Claims one message that is ready and answers how to ack it, by those who can. */
  readonly claim?: () => Promise<() => Promise<unknown>>
  /** Puts messages in that are due in an hour, by those who can. */
  readonly delayAll?: (payloads: readonly Payload[]) => Promise<unknown>
}

/** The clients of one process. */
export interface Connection {
  open(queue: string): Promise<Store>
  close(): Promise<unknown>
}

export interface Product {
  readonly name: string
  /** Whether a handler can have several messages. */
  readonly batches?: boolean
  /** Whether a handler can have a signal, or is left to run when its consumer is stopped. */
  readonly signals?: boolean
  /** Whether messages can be due later. */
  readonly delays?: boolean
  connect(address: Address): Promise<Connection>
}

/** Milliseconds of a clock that the processes of a machine share. */
export function now(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
