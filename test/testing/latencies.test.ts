import { mergeMap, pipe, run } from 'millrace'
import { marbles } from 'millrace/testing'
import { NEVER, of } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { at, counts, takes } from '../marbles/handlers.js'

describe('latencies as marbles', () => {
  it('the example of the design: granted while cancelling, released when the answer is in', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const latencies = { claim: ['r', '--r'], settle: '-r' }
      const queue = testQueue('               -a-b------', undefined, { latencies })
      const handled = pipe(queue.source(), mergeMap(takes(2), 1))
      expectObservable(handled, '             ^------!').toBe('-----a')
      expectSubscriptions(queue.claimsOf('a')).toBe('-^---!')
      expectSubscriptions(queue.claimsOf('b')).toBe('------^-!')
    })
  })

  it.each([
    ['--r', '(^!)', '--a'],
    ['-sr', '^!', '--a'],
    ['s--r', '(^!)', '---a'],
  ])('%s: when the store runs it, and when its caller knows', (settle, claim, value) => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('a', undefined, { latencies: { settle } })
      const acked = pipe(
        queue.source(),
        mergeMap((d) => d.ack().then(() => d.id), 1),
      )
      expectObservable(acked, '^------!').toBe(value)
      expectSubscriptions(queue.claimsOf('a')).toBe(claim)
    })
  })

  it.each([
    ['s-#', '(^!)', 2],
    ['--#', '^ 51ms !', 2],
    ['s', '(^!)', 2],
  ])('%s: asked again', (settle, claim, calls) => {
    let settles = 0
    marbles((helpers) => {
      const queue = helpers.testQueue('a', undefined, { latencies: { settle: [settle, 'r'] } })
      pipe(
        queue.source(),
        mergeMap(() => of(1), 1),
      ).subscribe()
      at(helpers, 4_000, () => {
        settles = queue.backend.calls.filter((verb) => verb === 'settle').length
      })
      if (settle !== '--#') helpers.expectSubscriptions(queue.claimsOf('a')).toBe(claim)
    })
    expect(settles).toBe(calls)
  })

  it('other marks are refused', () => {
    const test = () =>
      marbles(({ testQueue }) => {
        const queue = testQueue('a', undefined, { latencies: { settings: '-x-r' } })
        queue.source().subscribe()
      })
    expect(test).toThrow("a marble string of 's', 'r' and '#'")
  })
})

describe('what a test queue shows', () => {
  it('held: now, at each grant and at each end', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('-a-b')
      expectObservable(pipe(queue.source(), mergeMap(takes(3), 2)), '^------!').toBe('----a-b')
      expectObservable(queue.held).toBe('01-21-0', counts)
    })
  })

  it('a lapse ends a claim in its very frame, though nobody asks the store', () => {
    marbles(
      (helpers) => {
        const queue = helpers.testQueue('-a', undefined, { leaseMs: 50, latencies: { renew: '-' } })
        const stuck = pipe(
          queue.source(),
          // A promise cannot be ended, so its lane stays taken and claims nothing after the loss.
          mergeMap(() => new Promise<never>(() => {}), 1),
        )
        helpers.expectObservable(stuck).toBe('')
        helpers.expectSubscriptions(queue.claimsOf('a')).toBe('-^ 49ms !')
      },
      { maxFrames: 60 },
    )
  })

  it('a purge of what is claimed ends its claim', () => {
    marbles(
      (helpers) => {
        const queue = helpers.testQueue('a')
        pipe(
          queue.source(),
          mergeMap(() => NEVER, 1),
        ).subscribe()
        at(helpers, 4, () => void queue.purge({ state: 'claimed' }))
        helpers.expectSubscriptions(queue.claimsOf('a')).toBe('^---!')
      },
      { maxFrames: 100 },
    )
  })

  it('an answer that is asked for again is one claim and one ack', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('a', undefined, { latencies: { claim: ['s#', 'r'], settle: ['s#', 'r'] } })
      expectObservable(pipe(queue.source(), mergeMap(takes(1), 1)), '^ 99ms !').toBe('40ms a')
      expectObservable(queue.acks).toBe('40ms a')
      expectSubscriptions(queue.claimsOf('a')).toBe('^ 39ms !')
    })
  })

  it('an arrival that is refused fails the test', () => {
    const test = () => marbles(({ testQueue }) => void testQueue('a', { a: { payload: 'a', priority: -1 } }))
    expect(test).toThrow('marble a could not be enqueued')
  })

  it('sources complete at | only when all that arrived has ended', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a|', { a: { payload: 'a', delayMs: 20 } })
      expectObservable(pipe(queue.source(), mergeMap(takes(3), 1))).toBe('23ms (a|)')
    })
  })

  it('works for sinks too, and for sources that are made later', () => {
    let acked = -1
    marbles((helpers) => {
      const queue = helpers.testQueue('ab|')
      at(helpers, 20, () => {
        void run(pipe(queue.source(), mergeMap(takes(3), 1))).then((summary) => {
          acked = summary.acked
        })
      })
    })
    expect(acked).toBe(2)
  })
})
