/** What a failure leads to. The policy nearest the handler is asked first; one that has no opinion leaves it to the next. */
import { deadLetter, mergeMap, pipe, Queue, retryInPlace, retryLater, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'

class CardRefused extends Error {}

await using payments = new Queue<string>('payments', { backend: memoryBackend(), maxDeliveries: 3 })
await payments.enqueueAll([
  { payload: 'refused', id: 'payment-1' },
  { payload: 'flaky', id: 'payment-2' },
  { payload: 'hopeless', id: 'payment-3' },
])

const runs = new Map<string, number>()

function charge(card: string): void {
  const count = (runs.get(card) ?? 0) + 1
  runs.set(card, count)
  if (card === 'refused') throw new CardRefused('no funds')
  if (card === 'flaky' && count < 2) throw new Error('timeout')
  if (card === 'hopeless') throw new Error('server on fire')
}

const flow = pipe(
  payments.source({ until: 'idle' }),
  retryLater({ baseMs: 5, factor: 2 }), // asked third: requeue, until maxDeliveries is reached
  retryInPlace({ times: 1 }), // asked second: once more at once, under the same claim
  deadLetter({ when: (error) => error instanceof CardRefused }), // asked first: no second try for these
  mergeMap((delivery) => charge(delivery.payload), 1),
)
const { acked, requeued, deadLettered } = await run(flow)
console.log(`acked ${acked}, requeued ${requeued}, dead-lettered ${deadLettered}`)
for (const [card, count] of runs) console.log(`${card}: the handler ran ${count} times`)
for await (const { id, reason, attempts } of payments.deadLetters)
  console.log(`${id}: ${reason} (attempts: ${attempts})`)

// Prints:
// acked 1, requeued 2, dead-lettered 2
// refused: the handler ran 1 times
// flaky: the handler ran 2 times
// hopeless: the handler ran 6 times
// payment-1: Error: no funds (attempts: 1)
// payment-3: Error: server on fire (attempts: 3)
