// The cost of a message at a depth of 1 000 and of 1 000 000 queued ones, in memory.
import { type Entry, mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { type Contender, runBench, timed } from './runner.js'

const MESSAGES = 100_000
const LANES = 10
const PAYLOAD = { text: 'x'.repeat(189) }

/** Works on messages of a queue that holds `depth` others all the while. */
function atDepth(depth: number): Contender {
  const queue = new Queue<typeof PAYLOAD>(`depth-${depth}`, { backend: memoryBackend() })
  return {
    name: `${depth} queued`,
    setUp: () => fill(queue, depth),
    run: () => timed(MESSAGES, () => replace(queue)),
    tearDown: async () => {
      await queue.close()
    },
  }
}

/** Each message that is handled enqueues another, so the depth stays. */
async function replace(queue: Queue<typeof PAYLOAD>): Promise<void> {
  const stop = new AbortController()
  let left = MESSAGES
  const handler = async () => {
    await queue.enqueue(PAYLOAD)
    left -= 1
    if (left === 0) stop.abort()
  }
  await run(pipe(queue.source(), mergeMap(handler, LANES)), { signal: stop.signal })
}

async function fill(queue: Queue<typeof PAYLOAD>, depth: number): Promise<void> {
  const entries: Entry<typeof PAYLOAD>[] = Array.from({ length: 1_000 }, () => ({ payload: PAYLOAD }))
  for (let filled = 0; filled < depth; filled += entries.length) await queue.enqueueAll(entries)
}

await runBench({
  title: 'memory: the depth of the queue',
  payload: '200 bytes of JSON',
  durability: 'none',
  packages: ['millrace', 'rxjs'],
  scenarios: [
    {
      title: `${MESSAGES} messages claimed, acked and enqueued anew, n = ${LANES}`,
      baseline: '1000 queued',
      contenders: [atDepth(1_000), atDepth(1_000_000)],
    },
  ],
})
