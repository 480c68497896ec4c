/** Operators of RxJS behind a source: they cannot ask, and know nothing of claims. */
import { mergeMap, pipe, type SourceEvent } from 'millrace'
import { marbles } from 'millrace/testing'
import {
  catchError,
  concatMap,
  defer,
  delay,
  EMPTY,
  exhaustMap,
  map,
  merge,
  NEVER,
  of,
  repeat,
  retry,
  mergeMap as rxMergeMap,
  share,
  switchMap,
  take,
  takeUntil,
  takeWhile,
  tap,
  throwError,
  timer,
  toArray,
} from 'rxjs'
import { describe, expect, it } from 'vitest'
import { seenNext } from './cancelling.js'
import { takes } from './handlers.js'

describe('leaving a stream', () => {
  it('take(1) of a source gives its delivery back after the grace, and claims no more', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('(ab)')
      expectObservable(
        queue.source({ graceMs: 5 }).pipe(
          take(1),
          map(({ id }) => id),
        ),
      ).toBe('(a|)')
      expectSubscriptions(queue.claimsOf('a')).toBe('^----!')
      expectSubscriptions(queue.claimsOf('b')).toBe([])
    })
  })

  it('take(1) whose delivery is acked within the grace', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('(ab)')
      const first = queue.source().pipe(
        take(1),
        concatMap((d) => timer(3).pipe(concatMap(() => d.ack()))),
      )
      expectObservable(first).toBe('---(x|)', { x: 'settled' })
      expectSubscriptions(queue.claimsOf('a')).toBe('^--!')
      expectSubscriptions(queue.claimsOf('b')).toBe([])
    })
  })

  it('takeUntil while it waits leaves nothing behind', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions, hot }) => {
      const queue = testQueue('-----a')
      expectObservable(queue.source().pipe(takeUntil(hot('---x')))).toBe('---|')
      expectSubscriptions(queue.claimsOf('a')).toBe([])
    })
  })

  it('takeUntil while a handler runs releases its message', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions, hot }) => {
      const queue = testQueue('-a')
      const handled = pipe(
        queue.source(),
        mergeMap(() => NEVER, 1),
        takeUntil(hot('---x')),
      )
      expectObservable(handled).toBe('---|')
      expectSubscriptions(queue.claimsOf('a')).toBe('-^-!')
      expectObservable(queue.released).toBe('---a')
    })
  })

  it('takeWhile ends after the message that it refuses, which is acked', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abcd)')
      const handled = pipe(
        queue.source(),
        mergeMap(takes(1), 1),
        takeWhile((id) => id !== 'b', true),
      )
      expectObservable(handled).toBe('-a(b|)')
      expectObservable(queue.acks).toBe('-ab')
    })
  })

  it('a switchMap to another source gives back what the first held', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions, hot }) => {
      const [first, second] = [testQueue('(ab)'), testQueue('(xy)')]
      const sources = { 1: first, 2: second }
      const switched = hot('1---2').pipe(
        switchMap((which) =>
          pipe(
            sources[which as unknown as 1 | 2].source(),
            mergeMap((d) => (which === '1' ? NEVER : of(d.id).pipe(delay(2))), 1),
          ),
        ),
      )
      expectObservable(switched, '^-------!').toBe('------x')
      expectSubscriptions(first.claimsOf('a')).toBe('^---!')
      expectSubscriptions(first.claimsOf('b')).toBe([])
      expectSubscriptions(second.claimsOf('x')).toBe('----^-!')
      expectSubscriptions(second.claimsOf('y')).toBe('------^-!')
    })
  })

  it('an unsubscribe within next', () => {
    marbles(({ testQueue, expectSubscriptions }) => {
      const queue = testQueue('(ab)')
      const subscription = queue.source({ graceMs: 0 }).subscribe(() => subscription.unsubscribe())
      expectSubscriptions(queue.claimsOf('a')).toBe('(^!)')
      expectSubscriptions(queue.claimsOf('b')).toBe([])
    })
  })
})

describe('errors downstream', () => {
  it('an operator that throws ends the stream, and the message goes back uncounted', () => {
    let seen: string[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('a')
      const broken = queue.source({ graceMs: 3 }).pipe(
        map(() => {
          throw new Error('no')
        }),
      )
      helpers.expectObservable(broken).toBe('#', undefined, new Error('no'))
      helpers.expectObservable(queue.released).toBe('---a')
      seen = seenNext(helpers, queue, 9)
    })
    expect(seen).toEqual(['a 1 2'])
  })

  it('an error behind a handler finds the message acked', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)')
      const broken = pipe(
        queue.source(),
        mergeMap(takes(4), 1),
        tap(() => {
          throw new Error('no')
        }),
      )
      expectObservable(broken).toBe('----#', undefined, new Error('no'))
      expectObservable(queue.held).toBe('(01)0', { 0: 0, 1: 1 })
    })
  })

  it('retry subscribes anew, as a consumer of its own', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)|')
      let failures = 1
      const retried = pipe(
        queue.source(),
        mergeMap(takes(5), 1),
        tap(() => {
          if (failures-- > 0) throw new Error('no')
        }),
        retry(1),
      )
      // The first was done before its value broke the stream.
      expectObservable(retried).toBe('----------b----(c|)')
    })
  })

  it('catchError can go on with something else', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a')
      const caught = pipe(
        queue.source(),
        mergeMap(takes(1), 1),
        rxMergeMap(() => throwError(() => new Error('no'))),
        catchError(() => of('x')),
      )
      expectObservable(caught).toBe('-(x|)')
    })
  })
})

describe('repeat', () => {
  it('of a source that ends when empty polls it', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a---b')
      const polled = pipe(queue.source({ until: 'empty' }), mergeMap(takes(1), 1), repeat({ count: 3, delay: 3 }))
      expectObservable(polled).toBe('-a---b--|')
    })
  })
})

describe('credit', () => {
  it('of 1 lets a concurrent RxJS mergeMap work on one', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)')
      const worked = queue.source().pipe(rxMergeMap((d) => timer(4).pipe(concatMap(() => d.ack().then(() => d.id)))))
      expectObservable(worked, '^------------!').toBe('----a---b---(c)')
    })
  })

  it('of 3 lets it work on three', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abcd)')
      const worked = queue
        .source({ credit: 3 })
        .pipe(rxMergeMap((d) => timer(6).pipe(concatMap(() => d.ack().then(() => d.id)))))
      expectObservable(worked, '^------------!').toBe('------(abc)-d')
    })
  })

  it('is not renewed by an operator that swallows deliveries', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('(ab)')
      expectObservable(queue.source({ credit: 1 }).pipe(rxMergeMap(() => EMPTY)), '^---!').toBe('')
      expectSubscriptions(queue.claimsOf('b')).toBe([])
    })
  })

  it('that holds the stream is told of', () => {
    const events: string[] = []
    marbles(
      ({ testQueue }) => {
        const queue = testQueue('(abc)')
        const source = queue.source({ credit: 2 })
        source.events.subscribe((event: SourceEvent) => events.push(event.type))
        source.subscribe()
      },
      { maxFrames: 10 },
    )
    expect(events).toContain('credit-limited')
  })

  it('a slow exhaustMap leaves the next delivery to the grace', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('(ab)')
      const worked = queue
        .source({ credit: 2, graceMs: 4 })
        .pipe(exhaustMap((d) => timer(3).pipe(concatMap(() => d.ack().then(() => d.id)))))
      expectObservable(worked, '^----!').toBe('---a')
      expectSubscriptions(queue.claimsOf('b')).toBe('^--------!')
    })
  })
})

describe('several consumers', () => {
  it('each subscription is one of its own: they compete', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('abcd|')
      const source = queue.source()
      const worker = (name: string) =>
        pipe(
          source,
          mergeMap((d) => of(`${name}${d.id}`).pipe(delay(1)), 1),
        )
      expectObservable(merge(worker('1'), worker('2'))).toBe('-abc(d|)', {
        a: '1a',
        b: '2b',
        c: '1c',
        d: '2d',
      })
    })
  })

  it('share is one consumer for many observers', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('a|')
      const shared = pipe(queue.source(), mergeMap(takes(2), 1)).pipe(share())
      expectObservable(shared).toBe('--(a|)')
      expectObservable(shared).toBe('--(a|)')
      expectSubscriptions(queue.claimsOf('a')).toBe('^-!')
    })
  })

  it('what one gives back the other gets at once', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('a')
      const stuck = pipe(
        queue.source(),
        mergeMap(() => NEVER, 1),
      )
      expectObservable(stuck, '^---!').toBe('')
      expectObservable(
        defer(() => pipe(queue.source(), mergeMap(takes(2), 1))),
        '-^-----!',
      ).toBe('------a')
      expectSubscriptions(queue.claimsOf('a')).toBe(['^---!', '----^-!'])
    })
  })
})

it('toArray gathers until the source ends', () => {
  marbles(({ testQueue, expectObservable }) => {
    const queue = testQueue('a-b|')
    expectObservable(pipe(queue.source(), mergeMap(takes(1), 1), toArray())).toBe('---(x|)', { x: ['a', 'b'] })
  })
})
