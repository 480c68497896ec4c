/** What the etcd bench asks of each contender. */
import type { Consume, Payload } from '../messages.js'

/** For all who have leases. */
export const LEASE_MS = 30_000

/** How many messages are put in at once to fill a queue. */
export const BATCH = 200

/** One queue. */
export interface Store {
  /** One message in a call of its own. */
  enqueue(payload: Payload): Promise<unknown>
  /** Puts many in, by whatever way is the shortest; never measured except where it is the point. */
  enqueueAll(payloads: readonly Payload[]): Promise<unknown>
  /** Up to `size` handlers at once. Each message is acked when its handler ends. */
  readonly consume: Consume<Payload>
}

/** The client of one process. */
export interface Connection {
  open(queue: string): Promise<Store>
  close(): Promise<unknown>
}

export interface Product {
  readonly name: string
  connect(url: string): Promise<Connection>
}
