/** From queue to queue: an ack here and an enqueue there, in one atomic step on one backend. */
import { mergeMap, pipe, Queue, run, toQueue } from 'millrace'
import { memoryBackend } from 'millrace/memory'

interface Order {
  readonly sku: string
  readonly country: string
}

const backend = memoryBackend()
const orders = new Queue<Order>('orders', { backend })
const domestic = new Queue<Order>('domestic', { backend })
const abroad = new Queue<Order>('abroad', { backend })
const labels = new Queue<string>('labels', { backend })

await orders.enqueueAll([
  { payload: { sku: 'A-1', country: 'CH' } },
  { payload: { sku: 'B-2', country: 'FR' } },
  { payload: { sku: 'C-3', country: 'CH' } },
])

// A router forwards by hand: the handler has settled the delivery, so mergeMap does not.
const routing = pipe(
  orders.source({ until: 'empty' }),
  mergeMap((delivery) => delivery.forward(delivery.payload.country === 'CH' ? domestic : abroad, delivery.payload), 1),
)
await run(routing)
console.log(`domestic ${await domestic.size()}, abroad ${await abroad.size()}`)

// A sink for the common case, with a function that makes the new payload.
await toQueue(domestic.source({ until: 'empty' }), labels, ({ payload }) => `label for ${payload.sku}`)
for await (const { payload } of labels.peek()) console.log(payload)

const { enqueuedTotal, forwardedTotal } = await orders.stats()
console.log(`orders: ${enqueuedTotal} enqueued, ${forwardedTotal} forwarded`)
await backend.close()

// Prints:
// domestic 2, abroad 1
// label for A-1
// label for C-3
// orders: 3 enqueued, 3 forwarded
