// What becomes of a failure: refused cards go to a queue of their own, everything else is tried again later.
import { collect, deadLetter, pipe, process, Queue, retryInPlace, retryLater } from 'millrace'
import { memoryBackend } from 'millrace/memory'

class CardRefused extends Error {}

const backend = memoryBackend()
await using orders = new Queue<string>('orders', { backend, maxDeliveries: 3 })
await using refused = new Queue<string>('refused', { backend })
await orders.enqueueAll(['paid', 'refused', 'flaky', 'hopeless'].map((payload) => ({ payload })))

let tries = 0
function charge(order: string): string {
  if (order === 'refused') throw new CardRefused('card refused')
  if (order === 'hopeless') throw new Error('the gateway is on fire')
  if (order === 'flaky' && ++tries < 3) throw new Error('timeout')
  return 'receipt'
}

const outcomes = await collect(
  pipe(
    orders.source({ until: 'idle' }),
    retryLater({ baseMs: 20, factor: 2, maxMs: 1_000, jitter: 0 }),
    deadLetter({ to: refused, when: (error) => error instanceof CardRefused }),
    retryInPlace({ times: 1 }),
    process((delivery) => charge(delivery.payload), 1),
  ),
)
for (const { delivery, outcome } of outcomes) console.log(delivery.payload, 'attempt', delivery.attempt, outcome)
for await (const letter of orders.deadLetters) console.log('dead:', letter.payload, letter.reason)
console.log('refused:', await refused.tryTake())

// Prints:
// paid attempt 1 acked
// refused attempt 1 dead-lettered
// flaky attempt 1 requeued
// hopeless attempt 1 requeued
// flaky attempt 2 acked
// hopeless attempt 2 requeued
// hopeless attempt 3 dead-lettered
// dead: hopeless Error: the gateway is on fire
// refused: refused
