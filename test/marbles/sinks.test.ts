import {
  collect,
  consume,
  drain,
  forEach,
  mergeMap,
  pipe,
  Queue,
  retryLater,
  run,
  type Summary,
  toQueue,
} from 'millrace'
import { marbles } from 'millrace/testing'
import { defer, map } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { promised } from './cancelling.js'
import { at, failsAfter, takes } from './handlers.js'

const brief = (summary: Summary) => `${summary.acked} ${summary.requeued} ${summary.deadLettered} ${summary.released}`

describe('run', () => {
  it('fulfils with the account when the flow completes', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('ab|')
      const done = defer(() => run(pipe(queue.source(), mergeMap(takes(3), 1)))).pipe(map(brief))
      expectObservable(done).toBe('------(x|)', { x: '2 0 0 0' })
    })
  })

  it('counts failures', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a|', undefined, { maxDeliveries: 3 })
      const failing = pipe(
        queue.source(),
        retryLater(() => 4),
        mergeMap(failsAfter(1), 1),
      )
      expectObservable(defer(() => run(failing)).pipe(map(brief))).toBe('11ms (x|)', { x: '0 2 1 0' })
    })
  })

  it('stopped by its signal it fulfils when the last handler has settled', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('(abc)')
      const stop = new AbortController()
      at(helpers, 4, () => stop.abort())
      const work = mergeMap(() => promised(helpers, 9, 'x'), 2)
      const done = defer(() => run(pipe(queue.source(), work), { signal: stop.signal })).pipe(map(brief))
      helpers.expectObservable(done).toBe('---------(x|)', { x: '2 0 0 0' })
    })
  })

  it('stopped by the own signal of its source it fulfils just the same', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('a')
      const stop = new AbortController()
      at(helpers, 4, () => stop.abort())
      const done = defer(() => run(pipe(queue.source({ signal: stop.signal }), mergeMap(takes(9), 1))))
      helpers.expectObservable(done.pipe(map(brief))).toBe('----(x|)', { x: '0 0 0 1' })
    })
  })

  it('rejects with the error of the flow, after everything is back', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)')
      const broken = pipe(
        queue.source({ graceMs: 5 }),
        map(() => {
          throw new Error('no')
        }),
      )
      expectObservable(defer(() => run(broken))).toBe('-----#', undefined, new Error('no'))
      expectObservable(queue.released).toBe('-----a')
    })
  })
})

describe('drain', () => {
  it('ends when the queue is empty, also where the source has no end', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)')
      const done = defer(() => drain(pipe(queue.source(), mergeMap(takes(3), 2)))).pipe(map(brief))
      expectObservable(done, '-^').toBe('-------(x|)', { x: '3 0 0 0' })
    })
  })

  it('of nothing is done at once', () => {
    marbles(({ testQueue, expectObservable }) => {
      const done = defer(() => drain(testQueue('').source())).pipe(map(brief))
      expectObservable(done).toBe('(x|)', { x: '0 0 0 0' })
    })
  })
})

describe('consume', () => {
  it('acks each when the work is done, one after the other', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)|')
      const done = defer(() => consume(queue.source(), () => promised(helpers, 4, 0))).pipe(map(brief))
      helpers.expectObservable(done).toBe('--------(x|)', { x: '2 0 0 0' })
      helpers.expectObservable(queue.acks).toBe('----a---b')
    })
  })

  it('a throw is a failure of that message, and no reason to stop', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)|', undefined, { maxDeliveries: 1 })
      const work = ({ id }: { id: string }) => promised(helpers, 4, 0, id === 'a' ? new Error('no') : undefined)
      helpers.expectObservable(defer(() => consume(queue.source(), work)).pipe(map(brief))).toBe('--------(x|)', {
        x: '1 0 1 0',
      })
    })
  })
})

describe('forEach and collect', () => {
  it('forEach asks for the next when its promise is fulfilled', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)|')
      const work = defer(() => forEach(queue.source(), (d) => promised(helpers, 4, 0).then(() => d.ack())))
      helpers.expectObservable(work).toBe('--------(x|)', { x: undefined })
      helpers.expectSubscriptions(queue.claimsOf('b')).toBe('----^---!')
    })
  })

  it('forEach that throws: the delivery goes back at once, counted, and the throw comes out', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)')
      const work = defer(() =>
        forEach(queue.source(), () => {
          throw new Error('no')
        }),
      )
      helpers.expectObservable(work).toBe('#', undefined, new Error('no'))
      helpers.expectObservable(queue.requeues).toBe('a')
      helpers.expectSubscriptions(queue.claimsOf('b')).toBe([])
    })
  })

  it('collect gathers what a handler yields', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a-b|')
      expectObservable(defer(() => collect(pipe(queue.source(), mergeMap(takes(1), 1))))).toBe('---(x|)', {
        x: ['a', 'b'],
      })
    })
  })
})

describe('toQueue', () => {
  it('moves each message in one step: never in both, never in none', () => {
    const sums: number[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('(abc)|', undefined, { latencies: { settle: '-s-r' } })
      const next = new Queue<string>('next', { backend: queue.backend })
      for (let frame = 1; frame < 20; frame += 1) {
        at(helpers, frame, () => {
          const { ready, claimed } = queue.inspect().stats
          void next.size().then((moved) => sums.push(ready + claimed + moved))
        })
      }
      helpers.expectObservable(defer(() => toQueue(queue.source(), next)).pipe(map(brief))).toBe('---------(x|)', {
        x: '3 0 0 0',
      })
    })
    expect(new Set(sums)).toEqual(new Set([3]))
  })

  it('a map that throws is a failure of that message', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a|', undefined, { maxDeliveries: 1 })
      const next = new Queue<string>('next', { backend: queue.backend })
      const moved = defer(() =>
        toQueue(queue.source(), next, () => {
          throw new Error('no')
        }),
      )
      expectObservable(moved.pipe(map(brief))).toBe('-(x|)', { x: '0 0 1 0' })
    })
  })
})
