/** Order: lower priority numbers first, then arrival. A delayed message arrives when its delay is over. */
import { collect, concatMap, pipe, Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using jobs = new Queue<string>('jobs', { backend: memoryBackend() })
await jobs.enqueueAll([
  { payload: 'nightly report', priority: 10 },
  { payload: 'reminder', priority: 1, delayMs: 50 },
  { payload: 'password mail', priority: 1 },
  { payload: 'newsletter', priority: 10 },
])

// Enqueue once: the same id is refused while the message, or its outcome, is kept.
console.log((await jobs.enqueue('invoice', { id: 'invoice-7' })).status)
console.log((await jobs.enqueue('invoice', { id: 'invoice-7' })).status)

// 'idle' waits for the delayed one as well.
const flow = pipe(
  jobs.source({ until: 'idle' }),
  concatMap(({ payload }) => payload),
)
for (const job of await collect(flow)) console.log(job)

// Prints:
// enqueued
// duplicate
// invoice
// password mail
// nightly report
// newsletter
// reminder
