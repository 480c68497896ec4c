/**
 * A source is an Observable, so the operators of RxJS work on it. They cannot ask for more; `credit` bounds what they
 * are given: so many deliveries may be unsettled at once.
 */
import { pipe, Queue, process as settle } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { bufferCount, filter, lastValueFrom, map, mergeMap, toArray } from 'rxjs'

await using words = new Queue<string>('words', { backend: memoryBackend() })

async function refill(): Promise<void> {
  await words.enqueueAll(['one', 'two', 'three', 'four', 'five', 'six'].map((payload) => ({ payload })))
}

// After an operator of ours that settles, all that flows are plain values.
await refill()
const lengths = pipe(
  words.source({ until: 'empty' }),
  settle(({ payload }) => payload.length, 2),
  filter(({ outcome }) => outcome === 'acked'),
  map(({ value }) => value),
  bufferCount(3),
)
for await (const group of lengths) console.log(group)

// RxJS alone: its mergeMap runs the handlers, and settling is up to you.
await refill()
const loud = words.source({ until: 'empty', credit: 3 }).pipe(
  mergeMap(async (delivery) => {
    await delivery.ack()
    return delivery.payload.toUpperCase()
  }),
  toArray(),
)
console.log((await lastValueFrom(loud)).join(' '))

// Prints:
// [ 3, 3, 5 ]
// [ 4, 4, 3 ]
// ONE TWO THREE FOUR FIVE SIX
