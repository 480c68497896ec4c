// Three steps: intake stops at once, handlers go on for drainMs, and have graceMs after their signals have aborted.
import { mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using jobs = new Queue<string>('jobs', { backend: memoryBackend() })
await jobs.enqueueAll(['quick', 'wedged', 'waiting'].map((payload) => ({ payload })))

const shutdown = new AbortController()
const summary = await run(
  pipe(
    jobs.source(),
    mergeMap(async (delivery) => {
      if (delivery.payload === 'wedged') return new Promise(() => {})
      shutdown.abort(new Error('SIGTERM'))
      await new Promise((resolve) => setTimeout(resolve, 10))
      return 'done'
    }, 2),
  ),
  { signal: shutdown.signal, drainMs: 50, graceMs: 20 },
)
console.log(summary)
const { ready, claimed } = await jobs.stats()
console.log('ready', ready, 'claimed', claimed)

// Prints:
// {
//   acked: 1,
//   requeued: 0,
//   deadLettered: 0,
//   lost: 0,
//   released: 1,
//   settledDuringGrace: 1,
//   abandoned: 0
// }
// ready 2 claimed 0
