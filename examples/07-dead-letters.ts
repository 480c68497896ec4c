/** What could not be handled is kept with the reason: look at it, mend the cause, send it back or drop it. */
import { consume, deadLetter, pipe, Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'

interface Order {
  readonly sku: string
}

await using orders = new Queue<Order>('orders', { backend: memoryBackend() })
await orders.enqueueAll([
  { payload: { sku: 'A-1' }, id: 'order-1' },
  { payload: { sku: 'B-2' }, id: 'order-2' },
  { payload: { sku: '???' }, id: 'order-3' },
])

const known = new Set(['A-1'])

async function ship({ sku }: Order): Promise<void> {
  if (!known.has(sku)) throw new RangeError(`no such article: ${sku}`)
  console.log(`shipped ${sku}`)
}

async function work(): Promise<void> {
  await consume(pipe(orders.source({ until: 'empty' }), deadLetter()), (delivery) => ship(delivery.payload))
}

await work()
for await (const { id, reason, attempts } of orders.deadLetters) console.log(`${id}: ${reason} (attempts: ${attempts})`)

known.add('B-2')
console.log(`sent back: ${await orders.deadLetters.requeueAll(({ payload }) => payload?.sku !== '???')}`)
console.log(`dropped: ${await orders.deadLetters.purge('order-3')}`)
await work()
console.log(`left: ${(await orders.stats()).dead}`)

// Prints:
// shipped A-1
// order-2: RangeError: no such article: B-2 (attempts: 1)
// order-3: RangeError: no such article: ??? (attempts: 1)
// sent back: 1
// dropped: true
// shipped B-2
// left: 0
