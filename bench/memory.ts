// Claims, acks and leases of the memory backend, beside queues that only call a function.
import fastq from 'fastq'
import { mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import PQueue from 'p-queue'
import { from, lastValueFrom, mergeMap as rxMergeMap } from 'rxjs'
import { runBench, type Sample, timed } from './runner.js'

const MESSAGES = 100_000
const PAYLOAD = { text: 'x'.repeat(189) }

/** What every contender runs for each message. */
async function work(): Promise<void> {}

/** Enqueues one by one, as a caller would, and consumes until all are acked. */
function millrace(lanes: number): Promise<Sample> {
  return timed(MESSAGES, async () => {
    await using queue = new Queue<typeof PAYLOAD>('bench', { backend: memoryBackend() })
    const stop = new AbortController()
    let left = MESSAGES
    const running = run(
      pipe(
        queue.source(),
        mergeMap(async () => {
          await work()
          left -= 1
          if (left === 0) stop.abort()
        }, lanes),
      ),
      { signal: stop.signal },
    )
    const enqueued: Promise<unknown>[] = []
    for (let index = 0; index < MESSAGES; index += 1) enqueued.push(queue.enqueue(PAYLOAD))
    await Promise.all(enqueued)
    await running
  })
}

function fastqPromise(lanes: number): Promise<Sample> {
  return timed(MESSAGES, async () => {
    const queue = fastq.promise(work, lanes)
    const done: Promise<unknown>[] = []
    for (let index = 0; index < MESSAGES; index += 1) done.push(queue.push(PAYLOAD))
    await Promise.all(done)
  })
}

function pQueue(lanes: number): Promise<Sample> {
  return timed(MESSAGES, async () => {
    const queue = new PQueue({ concurrency: lanes })
    const done: Promise<unknown>[] = []
    for (let index = 0; index < MESSAGES; index += 1) done.push(queue.add(work))
    await Promise.all(done)
  })
}

function rxjsArray(lanes: number): Promise<Sample> {
  const values = new Array<typeof PAYLOAD>(MESSAGES).fill(PAYLOAD)
  return timed(MESSAGES, () => lastValueFrom(from(values).pipe(rxMergeMap(work, lanes))))
}

await runBench({
  title: 'memory: enqueue, claim, settle, leases on',
  payload: '200 bytes of JSON',
  durability: 'none',
  packages: ['millrace', 'fastq', 'p-queue', 'rxjs'],
  scenarios: [1, 10, 100].map((lanes) => ({
    title: `${MESSAGES} messages, no-op async handler, n = ${lanes}`,
    baseline: 'millrace',
    contenders: [
      { name: 'millrace', run: () => millrace(lanes) },
      { name: 'fastq.promise', run: () => fastqPromise(lanes) },
      { name: 'p-queue', run: () => pQueue(lanes) },
      { name: 'rxjs mergeMap over an array', run: () => rxjsArray(lanes) },
    ],
  })),
})
