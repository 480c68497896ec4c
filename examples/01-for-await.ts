// A loop over a queue: each message is claimed when the loop asks for it, and acked when it is done.
import { Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using orders = new Queue<{ sku: string }>('orders', { backend: memoryBackend() })
await orders.enqueue({ sku: 'A-1' }, { id: 'order-1', priority: 10 })
await orders.enqueue({ sku: 'B-2' }, { id: 'order-2', priority: 1 })
console.log(await orders.enqueue({ sku: 'B-2' }, { id: 'order-2' }))

for await (const delivery of orders.source({ until: 'empty' })) {
  console.log('ship', delivery.payload.sku, 'attempt', delivery.attempt)
  console.log(await delivery.ack())
}

// Prints:
// { id: 'order-2', status: 'duplicate' }
// ship B-2 attempt 1
// settled
// ship A-1 attempt 1
// settled
