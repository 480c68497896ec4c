/** A work queue on etcd: claims under a lease, retries with a delay, dead letters, and what becomes of leases. */
import { type Delivery, mergeMap, pipe, Queue, retryLater, run } from 'millrace'
import { etcdBackend } from 'millrace/etcd'

interface Order {
  readonly sku: string
}

const hosts = (process.env['ETCD_HOSTS'] ?? 'http://127.0.0.1:2379').split(',')
const open = () =>
  new Queue<Order>('example-work', { backend: etcdBackend({ hosts }), leaseMs: 5_000, maxDeliveries: 2 })

await using orders = open()
await orders.enqueueAll([
  { payload: { sku: 'A-1' }, id: 'a' },
  { payload: { sku: 'broken' }, id: 'b' },
  { payload: { sku: 'C-3' }, id: 'c', delayMs: 100 },
])

// A consumer that leaves gives its claims back at once: closing revokes its lease.
const leaver = open()
const held = await leaver.receive()
console.log(held?.id, 'attempt', held?.attempt)
await leaver.close({ graceMs: 0 })

const log: string[] = []
async function ship({ payload, attempt }: Delivery<Order>): Promise<void> {
  log.push(`${payload.sku} attempt ${attempt}`)
  if (payload.sku === 'broken') throw new Error('no such thing')
}

const source = orders.source({ until: 'idle' })
// What becomes of the claims: lease-expired, lease-restored and lease-lost are told here too.
const leases: string[] = []
source.events.subscribe(({ type }) => {
  if (type.startsWith('lease-')) leases.push(type)
})
const { acked, requeued, deadLettered } = await run(pipe(source, retryLater({ baseMs: 20 }), mergeMap(ship, 2)))
console.log(log.sort().join('\n'))
console.log({ acked, requeued, deadLettered, leases })

for await (const { id, reason, attempts } of orders.deadLetters) console.log(id, attempts, reason)
console.log(await orders.deadLetters.requeue('b'), await orders.size())

// Prints:
// a attempt 1
// A-1 attempt 1
// C-3 attempt 1
// broken attempt 1
// broken attempt 2
// { acked: 2, requeued: 1, deadLettered: 1, leases: [] }
// b 2 Error: no such thing
// true 1
