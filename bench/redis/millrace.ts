/** Millrace, as a user would write it. */
import { batch, mergeMap, pipe, Queue, run } from 'millrace'
import { redisBackend } from 'millrace/redis'
import { LEASE_MS, type Payload, type Product } from './store.js'

/** How long a batch waits for its last members. */
const WITHIN_MS = 10
const HOUR_MS = 3_600_000

export const millrace: Product = {
  name: 'millrace',
  batches: true,
  signals: true,
  delays: true,
  async connect(address) {
    const backend = redisBackend({ ...address })
    return {
      async open(name) {
        const queue = new Queue<Payload>(name, { backend, leaseMs: LEASE_MS })
        // Connects, which is nothing to measure.
        await queue.size()
        return {
          enqueue: (payload) => queue.enqueue(payload),
          enqueueAll: (payloads) => queue.enqueueAll(payloads.map((payload) => ({ payload }))),
          consume: (size, handler, signal) =>
            run(
              pipe(
                queue.source(),
                mergeMap(({ payload }) => handler(payload), size),
              ),
              { signal },
            ),
          consumeAbortably: (size, handler, signal) =>
            run(
              pipe(
                queue.source(),
                mergeMap((delivery) => handler(delivery.payload, delivery.signal), size),
              ),
              { signal },
            ),
          consumeBatches: (size, handler, signal) =>
            run(
              pipe(
                queue.source(),
                batch({ size, withinMs: WITHIN_MS }),
                mergeMap((deliveries) => handler(deliveries.map(({ payload }) => payload)), 1),
              ),
              { signal },
            ),
          claim: async () => {
            const delivery = await queue.tryReceive()
            if (delivery === undefined) throw new Error('nothing is ready')
            return () => delivery.ack()
          },
          delayAll: (payloads) => queue.enqueueAll(payloads.map((payload) => ({ payload, delayMs: HOUR_MS }))),
        }
      },
      close: async () => backend.close(),
    }
  },
}
