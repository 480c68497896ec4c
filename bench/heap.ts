// Whether the heap stays flat: a million messages, a million waits on one signal, many sources opened and cancelled.
import { mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { runBench, type Sample, timed } from './runner.js'

/** Work that is done before the heap is looked at first: what is kept on purpose (outcomes, pools) is there then. */
const WARM_UP_SHARE = 0.1

/** Times `operations` steps and prints by how much the heap has grown, from a tenth of them on. */
async function grown(what: string, operations: number, step: (index: number) => Promise<unknown>): Promise<Sample> {
  let before = 0
  const sample = await timed(operations, async () => {
    for (let index = 0; index < operations; index += 1) {
      if (index === operations * WARM_UP_SHARE) before = heapMiB()
      await step(index)
    }
  })
  console.log(`${what}: heap ${before.toFixed(1)} MiB, then ${(heapMiB() - before).toFixed(1)} MiB more`)
  return sample
}

function heapMiB(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed / 2 ** 20
}

async function messages(): Promise<Sample> {
  await using queue = new Queue<number>('messages', { backend: memoryBackend() })
  const stop = new AbortController()
  const running = run(
    pipe(
      queue.source(),
      mergeMap(() => {}, 10),
    ),
    { signal: stop.signal },
  )
  const sample = await grown('messages', 1_000_000, (index) => queue.enqueue(index))
  stop.abort()
  await running
  return sample
}

async function waits(): Promise<Sample> {
  await using queue = new Queue<number>('waits', { backend: memoryBackend() })
  const { signal } = new AbortController()
  return await grown('waits', 1_000_000, async (index) => {
    const waiting = queue.take({ signal })
    await queue.enqueue(index)
    await waiting
  })
}

async function sources(): Promise<Sample> {
  await using queue = new Queue<number>('sources', { backend: memoryBackend() })
  return await grown('sources', 100_000, async () => {
    const iterator = queue.source()[Symbol.asyncIterator]()
    const waiting = iterator.next()
    await iterator.return?.()
    await waiting
  })
}

const CONTENDERS = [
  { name: '1 000 000 messages through one source', run: messages },
  { name: '1 000 000 waits on one AbortSignal', run: waits },
  { name: '100 000 sources opened and cancelled', run: sources },
]

await runBench({
  title: 'memory: the heap over time',
  payload: 'a number',
  durability: 'none',
  packages: ['millrace', 'rxjs'],
  rounds: 1,
  scenarios: CONTENDERS.map((contender) => ({
    title: contender.name,
    baseline: contender.name,
    contenders: [contender],
  })),
})
