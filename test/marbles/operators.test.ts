import {
  batch,
  concatMap,
  deadLetter,
  filter,
  mapPayload,
  mergeMap,
  pipe,
  process,
  Queue,
  retryInPlace,
  retryLater,
} from 'millrace'
import { marbles } from 'millrace/testing'
import { delay, map, of, throwError } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { failsAfter, takes } from './handlers.js'

/** A handler that fails the first `times` runs of each message. */
function failing(times: number, frames = 1) {
  const runs = new Map<string, number>()
  return (d: { id: string }) => {
    const run = (runs.get(d.id) ?? 0) + 1
    runs.set(d.id, run)
    return run > times ? of(d.id).pipe(delay(frames)) : failsAfter(frames)(d as never)
  }
}

describe('mergeMap and concatMap', () => {
  it('results come as they are ready, not in the order of arrival', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue<number>('(abc)|', { a: 8, b: 4, c: 2 })
      expectObservable(
        pipe(
          queue.source(),
          mergeMap((d) => takes(d.payload)(d), 3),
        ),
      ).toBe('--c-b---(a|)')
    })
  })

  it('concatMap keeps the order whatever each takes', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue<number>('(abc)|', { a: 8, b: 4, c: 2 })
      expectObservable(
        pipe(
          queue.source(),
          concatMap((d) => takes(d.payload)(d)),
        ),
      ).toBe('8ms a---b-(c|)')
    })
  })

  it('a handler of many values emits each, and is acked at its end', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions, cold }) => {
      const queue = testQueue('a|')
      expectObservable(
        pipe(
          queue.source(),
          mergeMap(() => cold('-x-y-|'), 1),
        ),
      ).toBe('-x-y-|')
      expectSubscriptions(queue.claimsOf('a')).toBe('^----!')
    })
  })

  it('a handler without a value is acked too', () => {
    marbles(({ testQueue, expectObservable, cold }) => {
      const queue = testQueue('a|')
      expectObservable(
        pipe(
          queue.source(),
          mergeMap(() => cold('--|'), 1),
        ),
      ).toBe('--|')
      expectObservable(queue.acks).toBe('--a')
    })
  })

  it('one failure is a settlement, and disturbs no sibling', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)')
      const handled = pipe(
        queue.source(),
        mergeMap((d) => (d.id === 'b' ? failsAfter(1)(d) : takes(7)(d)), 3),
      )
      expectObservable(handled, '^---------!').toBe('-------(ac)')
      expectObservable(queue.requeues).toBe('-b')
    })
  })

  it('a handler that throws before it returns anything has failed', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a')
      const handled = pipe(
        queue.source(),
        mergeMap((): string => {
          throw new Error('no')
        }, 1),
      )
      expectObservable(handled, '^--!').toBe('')
      expectObservable(queue.requeues).toBe('a')
    })
  })

  it('without a policy a failure comes back after a second, then two, then four', () => {
    marbles(({ testQueue, expectSubscriptions }) => {
      const queue = testQueue('a', undefined, { maxDeliveries: 3 })
      // Half of the jitter of a fifth is taken off in virtual time.
      pipe(queue.source(), mergeMap(failsAfter(1), 1)).subscribe()
      expectSubscriptions(queue.claimsOf('a')).toBe(['^!', '901ms ^!', '2702ms ^!'])
    })
  })
})

describe('process', () => {
  it('emits how each ended, when that is confirmed', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)', undefined, { latencies: { settle: 's---r' } })
      const outcomes = pipe(
        queue.source(),
        process((d) => (d.id === 'a' ? takes(2)(d) : failsAfter(2)(d)), 2),
        map(({ outcome, delivery }) => `${delivery.id} ${outcome}`),
      )
      expectObservable(outcomes, '^---------!').toBe('------(xy)', { x: 'a acked', y: 'b requeued' })
    })
  })

  it('tells of a dead letter', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a|', undefined, { maxDeliveries: 1 })
      const outcomes = pipe(
        queue.source(),
        process(failsAfter(1), 1),
        map(({ outcome }) => outcome),
      )
      expectObservable(outcomes).toBe('-(x|)', { x: 'dead-lettered' })
    })
  })
})

describe('retryLater', () => {
  it('frees the lane at once', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('(ab)|')
      const handled = pipe(
        queue.source(),
        retryLater(() => 9),
        mergeMap(failing(1, 2), 1),
      )
      expectSubscriptions(queue.claimsOf('a')).toBe(['^-!', '-----------^-!'])
      expectSubscriptions(queue.claimsOf('b')).toBe(['--^-!', '-------------^-!'])
      expectObservable(handled).toBe('-------------a-(b|)')
    })
  })

  it('grows by its factor up to its maximum', () => {
    marbles(({ testQueue, expectSubscriptions }) => {
      const queue = testQueue('a')
      const backoff = { baseMs: 10, factor: 3, maxMs: 50, jitter: 0 }
      pipe(queue.source(), retryLater(backoff), mergeMap(failsAfter(1), 1)).subscribe()
      expectSubscriptions(queue.claimsOf('a')).toBe(['^!', '11ms ^!', '42ms ^!', '93ms ^!', '144ms ^!'])
    })
  })

  it('ends in the dead letters when the deliveries are used up', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a|', undefined, { maxDeliveries: 3 })
      const handled = pipe(
        queue.source(),
        retryLater(() => 2),
        mergeMap(failsAfter(1), 1),
      )
      expectObservable(queue.requeues).toBe('-a--a')
      expectObservable(queue.dead).toBe('-------a')
      expectObservable(handled).toBe('-------|')
    })
  })

  it('is told the attempt and the error', () => {
    const asked: unknown[] = []
    marbles(({ testQueue }) => {
      const queue = testQueue('a', undefined, { maxDeliveries: 3 })
      const later = retryLater((attempt, error) => {
        asked.push(attempt, (error as Error).message)
        return 1
      })
      pipe(queue.source(), later, mergeMap(failsAfter(1), 1)).subscribe()
    })
    expect(asked).toEqual([1, 'no', 2, 'no', 3, 'no'])
  })
})

describe('retryInPlace', () => {
  it('keeps the claim and the lane', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('(ab)|')
      const retry = retryInPlace({ times: 2, baseMs: 3, factor: 1, jitter: 0 })
      expectObservable(pipe(queue.source(), retry, mergeMap(failing(1), 1))).toBe('-----a----(b|)')
      expectSubscriptions(queue.claimsOf('a')).toBe('^----!')
      expectSubscriptions(queue.claimsOf('b')).toBe('-----^----!')
    })
  })

  it('gives way to the next policy when its times are used up', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a|', undefined, { maxDeliveries: 2 })
      const handled = pipe(
        queue.source(),
        retryLater(() => 5),
        retryInPlace({ times: 1 }),
        mergeMap(failsAfter(1), 1),
      )
      expectObservable(queue.requeues).toBe('--a')
      expectObservable(queue.dead).toBe('---------a')
      expectObservable(handled).toBe('---------|')
    })
  })

  it('an abort in the pause releases', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('a')
      const retry = retryInPlace({ times: 2, baseMs: 50, jitter: 0 })
      expectObservable(pipe(queue.source(), retry, mergeMap(failsAfter(1), 1)), '^---!').toBe('')
      expectSubscriptions(queue.claimsOf('a')).toBe('^---!')
      expectObservable(queue.released).toBe('----a')
    })
  })
})

describe('deadLetter', () => {
  it('gives up at once for the failures that it names', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)')
      const handled = pipe(
        queue.source(),
        retryLater(() => 50),
        deadLetter({ when: (_error, { id }) => id === 'a' }),
        mergeMap(failsAfter(1), 2),
      )
      expectObservable(handled, '^--------!').toBe('')
      expectObservable(queue.dead).toBe('-a')
      expectObservable(queue.requeues).toBe('-b')
    })
  })

  it('moves the payload to another queue in the same frame', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a|')
      const refused = new Queue<string>('refused', { backend: queue.backend })
      const handled = pipe(queue.source(), deadLetter({ to: refused }), mergeMap(failsAfter(2), 1))
      expectObservable(handled).toBe('--|')
      expectObservable(refused.source().pipe(map(({ payload }) => payload)), '^-----!').toBe('--a')
    })
  })
})

describe('filter and mapPayload', () => {
  it.each([
    ['ack', 'acks'],
    ['dead-letter', 'dead'],
    ['requeue', 'requeues'],
  ] as const)("filter's otherwise: '%s'", (otherwise, told) => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a')
      const passed = pipe(
        queue.source(),
        filter(() => false, { otherwise }),
        mergeMap(takes(1), 1),
      )
      expectObservable(passed, '^--!').toBe('')
      expectObservable(queue[told]).toBe('a')
    })
  })

  it('a predicate that throws is a failure of that message', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)')
      const passed = pipe(
        queue.source(),
        deadLetter(),
        filter(
          ({ id }) => {
            if (id === 'a') throw new Error('no')
            return true
          },
          { otherwise: 'ack' },
        ),
        mergeMap(takes(5), 1),
      )
      expectObservable(passed, '^------!').toBe('-----b')
      expectObservable(queue.dead).toBe('a')
    })
  })

  it('mapPayload keeps the claim', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue<number>('a|', { a: 20 })
      const doubled = pipe(
        queue.source(),
        mapPayload((n) => n * 2),
        mergeMap((d) => of(d.payload).pipe(delay(3)), 1),
      )
      expectObservable(doubled).toBe('---(x|)', { x: 40 })
      expectSubscriptions(queue.claimsOf('a')).toBe('^--!')
    })
  })
})

describe('batch', () => {
  const ids = mergeMap((ds: readonly { id: string }[]) => of(ds.map(({ id }) => id).join('')), 1)

  it('is emitted when it is full', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a-b-c-d')
      expectObservable(pipe(queue.source(), batch({ size: 2, withinMs: 9 }), ids), '^---------!').toBe('--x---y', {
        x: 'ab',
        y: 'cd',
      })
    })
  })

  it('is emitted when its time is over, counted from its first member', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('-a-b-----c')
      expectObservable(pipe(queue.source(), batch({ size: 9, withinMs: 4 }), ids), '^ 20ms !').toBe('-----x-------y', {
        x: 'ab',
        y: 'c',
      })
    })
  })

  it('a failure fails every member', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)')
      const handled = pipe(
        queue.source(),
        deadLetter(),
        batch({ size: 2, withinMs: 9 }),
        mergeMap(() => throwError(() => new Error('no')), 1),
      )
      expectObservable(handled, '^---!').toBe('')
      expectObservable(queue.dead).toBe('(ab)')
    })
  })

  it('members settle by themselves; the end of the handler settles the rest', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('(ab)')
      const handled = pipe(
        queue.source(),
        batch({ size: 2, withinMs: 9 }),
        mergeMap((ds) => {
          void ds[0]?.requeue({ delayMs: 50 })
          return of('done').pipe(delay(4))
        }, 1),
      )
      expectObservable(handled, '^-----!').toBe('----x', { x: 'done' })
      expectSubscriptions(queue.claimsOf('a')).toBe('(^!)')
      expectSubscriptions(queue.claimsOf('b')).toBe('^---!')
      expectObservable(queue.requeues).toBe('a')
      expectObservable(queue.acks).toBe('----b')
    })
  })
})
