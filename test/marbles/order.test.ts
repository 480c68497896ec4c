import { concatMap, mergeMap, pipe, retryLater } from 'millrace'
import { marbles } from 'millrace/testing'
import { NEVER } from 'rxjs'
import { describe, it } from 'vitest'
import { at, failsAfter, takes } from './handlers.js'

describe('order', () => {
  it('arrival', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)-d|')
      expectObservable(pipe(queue.source(), concatMap(takes(3)))).toBe('---a--b--c--(d|)')
    })
  })

  it('priority first, lower before higher, arrival among equals', () => {
    marbles(({ testQueue, expectObservable }) => {
      const urgent = (payload: string) => ({ payload, priority: 1 })
      const queue = testQueue('(abcd)|', {
        a: { payload: 'a', priority: 5 },
        b: urgent('b'),
        c: { payload: 'c', priority: 5 },
        d: urgent('d'),
      })
      expectObservable(pipe(queue.source(), concatMap(takes(3))), '-^').toBe('----b--d--a--(c|)')
    })
  })

  it('a delayed message takes the place of its ready time', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)-----c----|', { a: { payload: 'a', delayMs: 5 } })
      expectObservable(pipe(queue.source(), concatMap(takes(7))), '-^').toBe('--------b------a------(c|)')
    })
  })

  it('delayed messages come when they are due, the nearer first', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)|', { a: { payload: 'a', delayMs: 30 }, b: { payload: 'b', delayMs: 10 } })
      expectObservable(pipe(queue.source(), concatMap(takes(1)))).toBe('11ms b 19ms (a|)')
    })
  })

  it('a delay that is enqueued while a consumer waits is met in time', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('-----a|', { a: { payload: 'a', delayMs: 20 } })
      expectObservable(pipe(queue.source(), concatMap(takes(1)))).toBe('26ms (a|)')
    })
  })

  it('a requeue without delay returns to its old place', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)|')
      const first = concatMap((d: Parameters<ReturnType<typeof takes>>[0]) => {
        if (d.id === 'a' && d.attempt === 1) return d.requeue()
        return takes(5)(d)
      })
      expectObservable(pipe(queue.source(), first)).toBe('(s)--a----b----(c|)', {
        s: 'settled',
        a: 'a',
        b: 'b',
        c: 'c',
      })
    })
  })

  it('a failure with delay comes after what is ready by then', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abc)|')
      const handled = pipe(
        queue.source(),
        retryLater(() => 1),
        concatMap((d) => (d.id === 'a' && d.attempt === 1 ? failsAfter(1)(d) : takes(5)(d))),
      )
      expectObservable(handled).toBe('------b----c----(a|)')
    })
  })

  it('what a cancel releases is first again', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(abcd)')
      const stuck = pipe(
        queue.source(),
        mergeMap(() => NEVER, 2),
      )
      expectObservable(stuck, '^---!').toBe('')
      expectObservable(pipe(queue.source(), concatMap(takes(5))), '-----^ 20ms !').toBe('----------a----b----c----d')
    })
  })

  it('ageing: a step of priority is worth so much waiting', () => {
    marbles(({ testQueue, expectObservable }) => {
      const entry = (payload: string, priority: number) => ({ payload, priority })
      const queue = testQueue(
        'a--b-------c|',
        { a: entry('a', 0), b: entry('b', 1), c: entry('c', 0) },
        { ageing: { stepMs: 5 } },
      )
      // b has the sort key 3 + 5: less than that of c, which came at 11.
      expectObservable(pipe(queue.source(), concatMap(takes(12)))).toBe('12ms a 11ms b 11ms (c|)')
    })
  })

  it('what is paused stays, and goes on in order', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)')
      at(helpers, 2, () => void queue.pause())
      at(helpers, 20, () => void queue.resume())
      helpers.expectObservable(pipe(queue.source(), concatMap(takes(5))), '^ 40ms !').toBe('5ms a 19ms b')
    })
  })

  it('a cancelled message is not delivered, and one that is handled ends with its signal', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('(abc)')
      at(helpers, 2, () => void queue.cancel('a'))
      at(helpers, 2, () => void queue.cancel('b'))
      const stuck = concatMap((d: Parameters<ReturnType<typeof takes>>[0]) => (d.id === 'a' ? NEVER : takes(5)(d)))
      helpers.expectObservable(pipe(queue.source(), stuck), '^ 30ms !').toBe('-------c')
      helpers.expectSubscriptions(queue.claimsOf('a')).toBe('^-!')
      helpers.expectSubscriptions(queue.claimsOf('b')).toBe([])
    })
  })
})
