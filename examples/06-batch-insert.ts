/** Rows are inserted by the hundred, and every row still settles by itself. */
import { batch, type Delivery, mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'

interface Row {
  readonly sku: string
  readonly qty: number
}

await using rows = new Queue<Row>('rows', { backend: memoryBackend() })
await rows.enqueueAll(Array.from({ length: 250 }, (_, index) => ({ payload: { sku: `A-${index}`, qty: index % 100 } })))

async function insertAll(deliveries: readonly Delivery<Row>[]): Promise<void> {
  // What a table would refuse is settled here. The others are acked when this function ends.
  const refused = deliveries.filter(({ payload }) => payload.qty === 0)
  await Promise.all(refused.map((delivery) => delivery.deadLetter('qty must not be 0')))
  console.log(`insert into stock: ${deliveries.length - refused.length} rows`)
}

const flow = pipe(
  rows.source({ until: 'empty' }),
  batch({ size: 100, withinMs: 20 }),
  mergeMap((deliveries) => insertAll(deliveries), 1),
)
const { acked, deadLettered } = await run(flow)
console.log(`acked ${acked}, dead-lettered ${deadLettered}`)

// Prints:
// insert into stock: 99 rows
// insert into stock: 99 rows
// insert into stock: 49 rows
// acked 247, dead-lettered 3
