/** Millrace, as a user would write it. */
import { batch, mergeMap, pipe, Queue, run } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'
import type { Payload, Product } from './store.js'

/** How long a batch waits for its last members. */
const WITHIN_MS = 10

export const millrace: Product = {
  name: 'millrace',
  batches: true,
  async open(path, durability) {
    const backend = sqliteBackend(path, { durability })
    const queue = new Queue<Payload>('bench', { backend })
    // Opens the file, which is nothing to measure.
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
      consumeBatches: (size, handler, signal) =>
        run(
          pipe(
            queue.source(),
            batch({ size, withinMs: WITHIN_MS }),
            mergeMap((deliveries) => handler(deliveries.map(({ payload }) => payload)), 1),
          ),
          { signal },
        ),
      close: async () => backend.close(),
    }
  },
}
