/** Two workers on one Redis server, which `REDIS_URL` names: in earnest each is a process of its own, on any machine. */
import { mergeMap, pipe, Queue, run } from 'millrace'
import { redisBackend } from 'millrace/redis'

interface Order {
  readonly sku: string
}

const url = process.env['REDIS_URL'] ?? 'redis://127.0.0.1:6379'
const shop = new Queue<Order>('example-orders', { backend: redisBackend(url) })
await shop.enqueueAll(['A-1', 'B-2', 'C-3', 'D-4'].map((sku) => ({ payload: { sku }, id: sku })))
const again = await shop.enqueue({ sku: 'A-1' }, { id: 'A-1' })
console.log(again.status)

const shipped: string[] = []

/** Goes on until nothing is ready, delayed or in the hands of the other worker. */
async function work(): Promise<number> {
  await using orders = new Queue<Order>('example-orders', { backend: redisBackend(url), leaseMs: 10_000 })
  const pipeline = pipe(
    orders.source({ until: 'idle' }),
    mergeMap(async ({ payload }) => {
      shipped.push(payload.sku)
    }, 2),
  )
  return (await run(pipeline)).acked
}

const acked = await Promise.all([work(), work()])
console.log(shipped.sort().join(' '))
console.log(
  acked.reduce((sum, count) => sum + count),
  'acked',
)
await shop.close()

// Prints:
// duplicate
// A-1 B-2 C-3 D-4
// 4 acked
