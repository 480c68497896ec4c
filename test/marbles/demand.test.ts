import { batch, concatMap, filter, mapPayload, mergeMap, pipe } from 'millrace'
import { marbles } from 'millrace/testing'
import { map, NEVER, take, concatMap as thenMap } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { at, counts, expectAtMost, takes } from './handlers.js'

describe('nothing is claimed that nobody can work on', () => {
  it('no subscription, no claim', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('ab')
      pipe(queue.source(), mergeMap(takes(1), 2))
      expectObservable(queue.held).toBe('0', counts)
    })
  })

  it('an observer that cannot ask is given one at a time', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('ab')
      expectObservable(queue.source().pipe(map(({ id }) => id)), '^---!').toBe('a')
      expectSubscriptions(queue.claimsOf('b')).toBe([])
    })
  })

  it.each([
    [1, 'a'],
    [2, 'ab'],
    [3, 'abc'],
  ])('a credit of %i is that many unsettled deliveries', (credit, out) => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('abcd')
      expectObservable(queue.source({ credit }).pipe(map(({ id }) => id)), '^-----!').toBe(out)
    })
  })

  it('a settlement renews the credit once the store has confirmed it', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('ab', undefined, { latencies: { settle: 's--r' } })
      const acked = queue.source().pipe(thenMap((d) => d.ack().then(() => d.id)))
      expectObservable(acked, '^------!').toBe('---a--b')
      expectSubscriptions(queue.claimsOf('a')).toBe('(^!)')
      expectSubscriptions(queue.claimsOf('b')).toBe('---(^!)')
    })
  })

  it.each([
    [1, '9ms a 8ms b 8ms c 8ms d 8ms (e|)'],
    [2, '9ms (ab) 5ms (cd) 5ms (e|)'],
    [3, '9ms (abc) 4ms (de|)'],
  ])('mergeMap with %i lanes never holds more claims', (lanes, out) => {
    const seen = { max: 0 }
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abcde)|')
      expectAtMost(queue, lanes, seen)
      expectObservable(pipe(queue.source(), mergeMap(takes(9), lanes))).toBe(out)
    })
    expect(seen.max).toBe(lanes)
  })

  it('a lane is free only when its settlement is confirmed', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('ab', undefined, { latencies: { settle: '-s-r' } })
      expectObservable(pipe(queue.source(), mergeMap(takes(1), 1)), '^--------!').toBe('-a---b')
      expectSubscriptions(queue.claimsOf('a')).toBe('^-!')
      expectSubscriptions(queue.claimsOf('b')).toBe('----^-!')
    })
  })

  it('concatMap holds one', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)|')
      expectObservable(pipe(queue.source(), concatMap(takes(6)))).toBe('------a-----b-----(c|)')
      expectObservable(queue.held).toBe('                       (01)--(01)--(01)--0', counts)
    })
  })

  it('a handler that never ends keeps its lane and no other', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('abc')
      const handle = pipe(
        queue.source(),
        mergeMap((d) => (d.id === 'a' ? NEVER : takes(1)(d)), 2),
      )
      expectObservable(handle, '^----!').toBe('--bc')
      expectSubscriptions(queue.claimsOf('c')).toBe('--^!')
    })
  })

  it('filter asks for another in place of what it settled', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abcd)|')
      const odd = pipe(
        queue.source(),
        filter(({ id }) => id === 'b' || id === 'd', { otherwise: 'ack' }),
        mergeMap(takes(4), 1),
      )
      expectObservable(odd).toBe('----b---(d|)')
    })
  })

  it('mapPayload passes demand through unchanged', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)|')
      const upper = pipe(
        queue.source(),
        mapPayload((text) => text.toUpperCase()),
        mergeMap(({ payload }) => takes(6)({ id: payload } as never), 2),
      )
      expectObservable(upper).toBe('------(AB)--(C|)')
    })
  })

  it('a batch of two claims two, and no more while it is handled', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('(abcd)|')
      const batches = pipe(
        queue.source(),
        batch({ size: 2, withinMs: 5 }),
        mergeMap((ds) => takes(3)({ id: ds.map(({ id }) => id).join('') } as never), 1),
      )
      expectObservable(batches).toBe('---x--(y|)', { x: 'ab', y: 'cd' })
      expectSubscriptions(queue.claimsOf('c')).toBe('---^--!')
    })
  })

  it('a batch behind which nobody can ask is followed by the next when all of it is settled', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abcd)')
      const batches = pipe(queue.source(), batch({ size: 2, withinMs: 5 })).pipe(
        thenMap(([first, second]) => {
          first?.ack()
          return takes(2)(second as never).pipe(
            map(() => second?.ack()),
            map(() => `${first?.id}${second?.id}`),
          )
        }),
      )
      expectObservable(batches, '^----!').toBe('--x-y', { x: 'ab', y: 'cd' })
    })
  })

  it('demand that gathers while a claim is under way is asked for in one', () => {
    let claims = 0
    marbles((helpers) => {
      const queue = helpers.testQueue('(abcdef)|', undefined, { latencies: { claim: '--r' } })
      helpers.expectObservable(pipe(queue.source(), mergeMap(takes(7), 3))).toBe('9ms (abc) 4ms (def|)')
      at(helpers, 100, () => {
        claims = queue.backend.calls.filter((verb) => verb === 'claim').length
      })
    })
    expect(claims).toBeLessThanOrEqual(3)
  })

  it('one message wakes one of many that wait', () => {
    let claims = 0
    marbles((helpers) => {
      const queue = helpers.testQueue('-----a')
      for (let consumer = 0; consumer < 5; consumer += 1) pipe(queue.source(), mergeMap(takes(1), 1)).subscribe()
      at(helpers, 2, () => {
        claims = -queue.backend.calls.filter((verb) => verb === 'claim').length
      })
      at(helpers, 5, () => queue.backend.calls.length)
      at(helpers, 50, () => {
        claims += queue.backend.calls.filter((verb) => verb === 'claim').length
      })
      helpers.expectObservable(queue.acks).toBe('------a')
    })
    // One is woken, finds all it asked for and wakes the next, who finds nothing; it claims again when it is done.
    expect(claims).toBe(3)
  })

  it('each outstanding next() is one request', () => {
    const out: (string | undefined)[] = []
    marbles(
      (helpers) => {
        const queue = helpers.testQueue('abc')
        const iterator = queue.source()[Symbol.asyncIterator]()
        at(helpers, 4, () => {
          for (let n = 0; n < 2; n += 1) void iterator.next().then(({ value }) => out.push(value?.id))
        })
        helpers.expectObservable(queue.held).toBe('0---2', counts)
        at(helpers, 8, () => void iterator.return?.())
        helpers.expectSubscriptions(queue.claimsOf('c')).toBe([])
      },
      { maxFrames: 7 },
    )
    expect(out).toEqual(['a', 'b'])
  })

  it('take(1) leaves the rest unclaimed', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('abc')
      expectObservable(pipe(queue.source(), mergeMap(takes(1), 1), take(1))).toBe('-(a|)')
      expectSubscriptions(queue.claimsOf('a')).toBe('^!')
      expectSubscriptions(queue.claimsOf('b')).toBe([])
    })
  })
})
