// A source is a real Observable. Operators of RxJS cannot ask for more, so the source grants credit.
import { mergeMap, pipe, Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { filter, take, toArray } from 'rxjs'

await using numbers = new Queue<number>('numbers', { backend: memoryBackend() })
await numbers.enqueueAll([1, 2, 3, 4, 5, 6].map((payload) => ({ payload })))

const source = numbers.source({ credit: 2 })
const squares = pipe(
  source,
  mergeMap(({ payload }) => payload ** 2, 2),
  filter((square) => square % 2 === 0),
  take(2),
  toArray(),
)
squares.subscribe((values) => console.log(values))
await new Promise((resolve) => setTimeout(resolve, 20))
await source.stop()
console.log('left', await numbers.size())

// Prints:
// [ 4, 16 ]
// left 2
