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

/** `BENCH_SHARE=0.01 npm run bench -- etcd` is a trial: so small a share of the messages, in one round. */
const SHARE = Number(process.env['BENCH_SHARE'] ?? 1)
export const isTrial = SHARE < 1

export function scaled(count: number): number {
  return Math.max(1, Math.round(count * SHARE))
}

/** One run on an own connection. */
export async function withConnection<R>(
  product: Product,
  url: string,
  work: (connection: Connection) => Promise<R>,
): Promise<R> {
  const connection = await product.connect(url)
  try {
    return await work(connection)
  } finally {
    await connection.close()
  }
}
