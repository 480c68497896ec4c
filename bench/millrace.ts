/** Millrace as a user would write it, on any backend. */
import { batch, mergeMap, pipe, type Queue, run } from 'millrace'
import type { Handler, Payload } from './messages.js'

/** How long a batch waits for its last members. */
const WITHIN_MS = 10

/** What the benches of stores ask of a queue. */
export function storeOf(queue: Queue<Payload>) {
  return {
    enqueue: (payload: Payload) => queue.enqueue(payload),
    enqueueAll: (payloads: readonly Payload[]) => queue.enqueueAll(payloads.map((payload) => ({ payload }))),
    consume: (size: number, handler: Handler<Payload>, signal: AbortSignal) =>
      run(
        pipe(
          queue.source(),
          mergeMap(({ payload }) => handler(payload), size),
        ),
        { signal },
      ),
    consumeBatches: (size: number, handler: Handler<readonly Payload[]>, signal: AbortSignal) =>
      run(
        pipe(
          queue.source(),
          batch({ size, withinMs: WITHIN_MS }),
          mergeMap((deliveries) => handler(deliveries.map(({ payload }) => payload)), 1),
        ),
        { signal },
      ),
  }
}
