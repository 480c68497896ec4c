// A marble test of a pipeline: no real time passes, and an orphaned claim is a window without an end.
import { mergeMap, pipe } from 'millrace'
import { marbles } from 'millrace/testing'
import { delay, of } from 'rxjs'

marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
  const queue = testQueue('-a-b------')
  const handled = pipe(
    queue.source(),
    mergeMap((delivery) => of(delivery.payload).pipe(delay(3)), 1),
  )
  expectObservable(handled, '^----!').toBe('----a')
  expectSubscriptions(queue.claimsOf('a')).toBe('-^--!')
  expectSubscriptions(queue.claimsOf('b')).toBe('----^!')
})
console.log('b was cancelled while it was handled, and is free again')

// Prints:
// b was cancelled while it was handled, and is free again
