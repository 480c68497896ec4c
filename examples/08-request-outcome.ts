/** A producer that wants to know how its message ended, from this process or, on a shared backend, from any other. */
import { deadLetter, mergeMap, type Outcome, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using sums = new Queue<readonly number[]>('sums', { backend: memoryBackend() })

function add(numbers: readonly number[]): number {
  if (numbers.length === 0) throw new RangeError('nothing to add')
  return numbers.reduce((sum, each) => sum + each)
}

const shutdown = new AbortController()
const flow = pipe(
  sums.source(),
  deadLetter(),
  mergeMap((delivery) => add(delivery.payload), 4, { storeResult: true }),
)
const worker = run(flow, { signal: shutdown.signal })

async function ask(numbers: readonly number[]): Promise<Outcome> {
  const { id } = await sums.enqueue(numbers)
  return sums.outcome(id, { timeoutMs: 5_000 })
}

console.log(await ask([1, 2, 3]))
console.log(await ask([]))

const { id } = await sums.enqueue([4], { delayMs: 60_000 })
console.log(await sums.outcome(id, { timeoutMs: 10 }))
console.log(await sums.cancel(id), await sums.outcome(id))
console.log(await sums.outcome('never-seen'))

shutdown.abort()
await worker

// Prints:
// { state: 'done', result: 6 }
// { state: 'dead', reason: 'RangeError: nothing to add' }
// { state: 'pending' }
// cancelled { state: 'cancelled' }
// { state: 'unknown' }
