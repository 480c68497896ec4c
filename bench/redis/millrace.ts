import { mergeMap, pipe, Queue, run } from 'millrace'
import { redisBackend } from 'millrace/redis'
import type { Payload } from '../messages.js'
import { storeOf } from '../millrace.js'
import { LEASE_MS, type Product } from './store.js'

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
          ...storeOf(queue),
          consumeAbortably: (size, handler, signal) =>
            run(
              pipe(
                queue.source(),
                mergeMap((delivery) => handler(delivery.payload, delivery.signal), size),
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
