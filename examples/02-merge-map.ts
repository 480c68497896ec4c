// Bounded concurrency: two lanes, an ack when the handler ends, and an account of every claim.
import { mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using pages = new Queue<string>('pages', { backend: memoryBackend() })
await pages.enqueueAll(['/', '/docs', '/blog', '/about'].map((payload) => ({ payload })))

let running = 0
let most = 0
async function fetchPage(url: string, signal: AbortSignal): Promise<number> {
  running += 1
  most = Math.max(most, running)
  await new Promise((resolve) => setImmediate(resolve))
  signal.throwIfAborted()
  running -= 1
  return url.length
}

const summary = await run(
  pipe(
    pages.source({ until: 'empty' }),
    mergeMap((delivery) => fetchPage(delivery.payload, delivery.signal), 2),
  ),
)
console.log('at most', most, 'at once')
console.log('acked', summary.acked, 'released', summary.released, 'abandoned', summary.abandoned)

// Prints:
// at most 2 at once
// acked 4 released 0 abandoned 0
