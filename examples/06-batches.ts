// Batches by size and by time; a handler that ends settles every member that is not settled yet.
import { batch, drain, mergeMap, pipe, Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using rows = new Queue<number>('rows', { backend: memoryBackend() })
await rows.enqueueAll([1, 2, 3, 4, 5].map((payload) => ({ payload })))

const summary = await drain(
  pipe(
    rows.source(),
    batch({ size: 2, withinMs: 20 }),
    mergeMap((deliveries) => {
      console.log('insert', deliveries.map(({ payload }) => payload).join(' '))
    }, 1),
  ),
)
console.log('acked', summary.acked)

// Prints:
// insert 1 2
// insert 3 4
// insert 5
// acked 5
