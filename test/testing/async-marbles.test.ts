import { consume, type Delivery, drain, mergeMap, pipe } from 'millrace'
import { asyncMarbles } from 'millrace/testing'
import { delay, firstValueFrom, of, timer } from 'rxjs'
import { describe, expect, it } from 'vitest'

describe('asyncMarbles', () => {
  it('operators of RxJS take virtual time, before and after an await', async () => {
    const began = performance.now()
    await asyncMarbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('-a-b|')
      const work = async (d: Delivery<string>) => {
        await firstValueFrom(timer(20_000))
        return firstValueFrom(of(d.id).pipe(delay(10_000)))
      }
      expectObservable(pipe(queue.source(), mergeMap(work, 2))).toBe('30001ms a-(b|)')
      expectSubscriptions(queue.claimsOf('a')).toBe('-^ 29999ms !')
    })
    expect(performance.now() - began).toBeLessThan(4_000)
  })

  it('the test itself may wait, for promises of the queue and for the end', async () => {
    const seen: unknown[] = []
    await asyncMarbles(async ({ testQueue, scheduler, flush }) => {
      const queue = testQueue('')
      seen.push(await queue.enqueue('x', { id: 'x' }))
      const summary = await drain(
        pipe(
          queue.source(),
          mergeMap(async () => firstValueFrom(timer(7)), 1),
        ),
      )
      seen.push(summary.acked, scheduler.frame)
      const late = firstValueFrom(timer(100)).then(() => seen.push(scheduler.frame))
      await flush()
      await late
    })
    expect(seen).toEqual([{ id: 'x', status: 'enqueued' }, 1, 7, 107])
  })

  it('marbles that are made after an await are marbles of the same time', async () => {
    await asyncMarbles(async ({ testQueue, cold, time, expectObservable }) => {
      const queue = testQueue('a')
      await queue.size()
      expect(time('---|')).toBe(3)
      expectObservable(
        pipe(
          queue.source(),
          mergeMap(() => cold('--x|'), 1),
        ),
        '^------!',
      ).toBe('--x')
    })
  })

  it('a loop with for await', async () => {
    const seen: string[] = []
    await asyncMarbles(async ({ testQueue, scheduler }) => {
      for await (const d of testQueue('-a--b').source()) {
        await firstValueFrom(timer(1))
        await d.ack()
        seen.push(`${scheduler.frame} ${d.id}`)
        if (d.id === 'b') break
      }
    })
    expect(seen).toEqual(['2 a', '5 b'])
  })

  it('an abort that a handler waits on with native promises releases its message', async () => {
    await asyncMarbles(async ({ testQueue, expectSubscriptions }) => {
      const queue = testQueue('-a')
      const stop = new AbortController()
      const work = (d: Delivery<string>) =>
        new Promise<void>((_resolve, reject) => d.signal.addEventListener('abort', () => reject(d.signal.reason)))
      const done = consume(queue.source(), work, { signal: stop.signal })
      await firstValueFrom(timer(5))
      stop.abort()
      expect(await done).toMatchObject({ released: 1, acked: 0, requeued: 0 })
      expectSubscriptions(queue.claimsOf('a')).toBe('-^---!')
    })
  })

  it('rejects with what the test throws, and with what a frame throws', async () => {
    const thrown = asyncMarbles(async ({ flush }) => {
      await flush()
      throw new Error('mine')
    })
    await expect(thrown).rejects.toThrow('mine')
    const inFrame = asyncMarbles(({ scheduler }) => {
      scheduler.schedule(() => {
        throw new Error('in a frame')
      }, 3)
    })
    await expect(inFrame).rejects.toThrow('in a frame')
  })

  it('gives up on a test that waits for nothing', async () => {
    const test = asyncMarbles(() => new Promise<void>(() => {}))
    await expect(test).rejects.toThrow('the test waits for something that virtual time does not bring')
  })

  it('two cannot run side by side, and one after the other can', async () => {
    const first = asyncMarbles(async ({ flush }) => flush())
    await expect(asyncMarbles(() => {})).rejects.toThrow('side by side')
    await first
    await asyncMarbles(() => {})
  })
})
