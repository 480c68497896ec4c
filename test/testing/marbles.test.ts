import { concatMap, drain, mergeMap, pipe, retryLater } from 'millrace'
import { asyncMarbles, marbles } from 'millrace/testing'
import { delay, NEVER, of, throwError } from 'rxjs'
import { describe, expect, it } from 'vitest'

describe('marbles', () => {
  it('feeds a queue, and shows what comes out and how long each claim lived', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('-a-b|')
      const handled = pipe(
        queue.source(),
        mergeMap((delivery) => of(delivery.payload).pipe(delay(3)), 1),
      )
      expectObservable(handled).toBe('----a--(b|)')
      expectSubscriptions(queue.claimsOf('a')).toBe('-^--!')
      expectSubscriptions(queue.claimsOf('b')).toBe('----^--!')
      expectObservable(queue.acks).toBe('----a--b')
    })
  })

  it('a message granted while its consumer is being cancelled is released as soon as the answer is in', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('-a-b------', undefined, { latencies: { claim: { request: 1, reply: 2 } } })
      const handled = pipe(
        queue.source(),
        mergeMap((delivery) => of(delivery.payload).pipe(delay(2)), 1),
      )
      expectObservable(handled, '^------!').toBe('-----a')
      expectSubscriptions(queue.claimsOf('a')).toBe('-^---!')
      expectSubscriptions(queue.claimsOf('b')).toBe('------^-!')
      expectObservable(queue.released).toBe('--------b')
    })
  })

  it('fails where the marbles differ, and says how', () => {
    const test = () =>
      marbles(({ testQueue, expectObservable }) => {
        const queue = testQueue('a|')
        expectObservable(
          pipe(
            queue.source(),
            concatMap((delivery) => of(delivery.payload)),
          ),
        ).toBe('-(a|)')
      })
    expect(test).toThrow('marbles differ\n  expected [1:a  1:|]\n  actual   [0:a  1:|]')
  })

  it('fails where a claim outlives what was expected', () => {
    const test = () =>
      marbles(
        ({ testQueue, expectObservable, expectSubscriptions }) => {
          const queue = testQueue('a')
          expectObservable(
            pipe(
              queue.source(),
              mergeMap(() => NEVER, 1),
            ),
          ).toBe('')
          expectSubscriptions(queue.claimsOf('a')).toBe('^--!')
        },
        { maxFrames: 1_000 },
      )
    expect(test).toThrow('expected [0..3]\n  actual   [0..Infinity]')
  })

  it('takes values, entries and settings', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue<number>('(ab)', { a: { payload: 1, priority: 9 }, b: 2 }, { maxDeliveries: 2 })
      const handled = pipe(
        queue.source(),
        retryLater(() => 5),
        mergeMap(({ payload }) => (payload === 1 ? throwError(() => new Error('no')) : of(payload)), 1),
      )
      expectObservable(handled, '^ 20ms !').toBe('2', { 2: 2 })
      expectObservable(queue.requeues).toBe('a')
      expectObservable(queue.dead).toBe('-----a')
    })
  })

  it('drives sinks', () => {
    marbles(({ testQueue, expectObservable, scheduler }) => {
      const queue = testQueue('ab')
      let acked: number | undefined
      scheduler.schedule(() => {
        const handled = pipe(
          queue.source(),
          mergeMap(() => of(1).pipe(delay(2)), 2),
        )
        void drain(handled).then((account) => {
          acked = account.acked
        })
      }, 1)
      scheduler.schedule(() => expect(acked).toBe(2), 10)
      expectObservable(queue.acks).toBe('---(ab)')
    })
  })
})

describe('asyncMarbles', () => {
  it('lets promises make progress within their frame', async () => {
    await asyncMarbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('-a-b|')
      const handled = pipe(
        queue.source(),
        mergeMap(async (delivery) => {
          await Promise.resolve()
          return delivery.payload
        }, 1),
      )
      expectObservable(handled).toBe('-a-b|')
      expectSubscriptions(queue.claimsOf('a')).toBe('-(^!)')
    })
  })

  it('fails where the marbles differ', async () => {
    const test = asyncMarbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('-a|')
      expectObservable(
        pipe(
          queue.source(),
          mergeMap(async (delivery) => delivery.payload, 1),
        ),
      ).toBe('a|')
    })
    await expect(test).rejects.toThrow('marbles differ')
  })
})
