/** Order: lower priority numbers first, then arrival. A delayed message arrives when its delay is over. */
import { collect, concatMap, pipe, Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using jobs = new Queue<string>('jobs', { backend: memoryBackend() })
await jobs.enqueueAll([
  { payload: 'nightly report', priority: 10 },
  { payload: 'password mail', priority: 1 },
  { payload: 'newsletter', priority: 10 },
])

// Enqueue once: the same id is refused while the message, or its outcome, is kept.
console.log((await jobs.enqueue('invoice', { id: 'invoice-7' })).status)
console.log((await jobs.enqueue('invoice', { id: 'invoice-7' })).status)

async function workUntil(until: 'empty' | 'idle'): Promise<void> {
  const flow = pipe(
    jobs.source({ until }),
    concatMap(({ payload }) => payload),
  )
  console.log(`${until}: ${(await collect(flow)).join(', ')}`)
}

// 'empty' ends when nothing is ready; 'idle' waits for what is delayed as well.
await workUntil('empty')
await jobs.enqueue('reminder', { delayMs: 50 })
await workUntil('idle')

// Prints:
// enqueued
// duplicate
// empty: invoice, password mail, nightly report, newsletter
// idle: reminder
