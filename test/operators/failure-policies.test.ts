import { collect, mergeMap, pipe, retryInPlace, retryLater, run } from 'millrace'
import { describe, expect, it } from 'vitest'
import { expectStats, memoryQueue } from '../support/queues.js'
import { gate, turn } from '../support/wait.js'

/** A queue that holds these payloads. */
async function filled<T>(...payloads: T[]) {
  const { queue, backend } = memoryQueue<T>()
  await queue.enqueueAll(payloads.map((payload, index) => ({ payload, id: `m${index}` })))
  return { queue, backend, source: queue.source({ until: 'empty' }) }
}

describe('failure policies', () => {
  it('the one nearest the handler is asked first: in place, then later', async () => {
    const { source, queue } = await filled('a')
    let runs = 0
    await run(
      pipe(
        source,
        retryLater({ baseMs: 60_000, jitter: 0 }),
        retryInPlace({ times: 2, baseMs: 1, jitter: 0 }),
        mergeMap(({ attempt }) => {
          runs += 1
          expect(attempt).toBe(1)
          throw new Error('again')
        }, 1),
      ),
    )
    expect(runs).toBe(3)
    await expectStats(queue, { delayed: 1 })
  })

  it('in place it succeeds under the same claim', async () => {
    const { source, queue } = await filled('a')
    let runs = 0
    const handler = async () => {
      runs += 1
      if (runs < 3) throw new Error('not yet')
      return runs
    }
    expect(await collect(pipe(source, retryInPlace({ times: 5 }), mergeMap(handler, 1)))).toEqual([3])
    await expectStats(queue, { ackedTotal: 1 })
  })

  it('a cancel ends the pause between two runs in place, and the message is released', async () => {
    const { queue } = await filled('a')
    const source = queue.source()
    const failed = gate()
    const subscription = pipe(
      source,
      retryInPlace({ times: 5, baseMs: 60_000 }),
      mergeMap(() => {
        failed.open()
        throw new Error('pause')
      }, 1),
    ).subscribe()
    await failed.promise
    await turn()
    subscription.unsubscribe()
    expect(await source.stop()).toMatchObject({ released: 1 })
    expect(await queue.tryReceive()).toMatchObject({ attempt: 1 })
  })

  it('a policy that throws has no say', async () => {
    const { source, queue } = await filled('a')
    const broken = retryLater(() => {
      throw new Error('broken policy')
    })
    await run(
      pipe(
        source,
        broken,
        mergeMap(() => {
          throw new Error('failed')
        }, 1),
      ),
    )
    await expectStats(queue, { delayed: 1 })
  })

  it.each([Number.NaN, -5, Number.POSITIVE_INFINITY])('a backoff function that gives %s is now', async (delayMs) => {
    const { source, queue } = await filled('a')
    await run(
      pipe(
        source,
        retryLater(() => delayMs),
        mergeMap(({ attempt }) => {
          if (attempt === 1) throw new Error('once')
        }, 1),
      ),
    )
    await expectStats(queue, { ackedTotal: 1 })
  })

  it('options are closed lists', () => {
    expect(() => retryLater({ base: 1 } as never)).toThrow('retryLater.base')
    expect(() => retryInPlace({} as never)).toThrow('retryInPlace.times')
    expect(() => retryLater({ factor: 0.5 })).toThrow('retryLater.factor must be a number from 1 to 1000')
  })
})
