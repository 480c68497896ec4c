// A caller waits for the end of a message, from any process; another is cancelled while it is handled.
import { mergeMap, pipe, Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using sums = new Queue<number[]>('sums', { backend: memoryBackend() })
const source = sums.source()
const subscription = pipe(
  source,
  mergeMap(
    async ({ payload, signal }) => {
      if (payload.length === 0)
        await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      return payload.reduce((sum, term) => sum + term, 0)
    },
    2,
    { storeResult: true },
  ),
).subscribe()

await sums.enqueue([1, 2, 3], { id: 'six' })
console.log(await sums.outcome('six'))

await sums.enqueue([], { id: 'endless' })
console.log(await sums.outcome('endless', { timeoutMs: 10 }))
console.log(await sums.cancel('endless'), await sums.outcome('endless'))

subscription.unsubscribe()
console.log(await source.stop())

// Prints:
// { state: 'done', result: 6 }
// { state: 'pending' }
// cancelling { state: 'cancelled' }
// { released: 0, settledDuringGrace: 0, abandoned: 0 }
