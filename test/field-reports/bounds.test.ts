import { concatMap, type Delivery, drain, InvalidOptionError, mergeMap, pipe, run, type SourceOptions } from 'millrace'
import { marbles } from 'millrace/testing'
import { NEVER, mergeMap as rxMergeMap, takeUntil, timer } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { SequenceLog } from '../../src/sources/memory/sequence-log.js'
import { at } from '../marbles/handlers.js'
import { expectStats, memoryQueue } from '../support/queues.js'
import { gate, turn, until } from '../support/wait.js'

describe('bounds and order', () => {
  it('E11 behind the mergeMap of RxJS no more is claimed than the credit', async () => {
    const { queue } = memoryQueue<number>()
    await queue.enqueueAll(Array.from({ length: 10_000 }, (_, payload) => ({ payload })))
    const hold = gate()
    const source = queue.source({ credit: 4 })
    const subscription = pipe(
      source,
      rxMergeMap(() => hold.promise, 4),
    ).subscribe()
    await until('the credit is used', async () => (await queue.stats()).claimed === 4)
    await turn()
    await expectStats(queue, { claimed: 4, ready: 9_996 })
    subscription.unsubscribe()
    await source.stop({ graceMs: 0 })
    await expectStats(queue, { claimed: 0, ready: 10_000 })
  })

  it('E11 that the credit holds the stream is told once for each time that it is used up', async () => {
    const { queue } = memoryQueue<number>()
    await queue.enqueueAll([1, 2, 3].map((payload) => ({ payload })))
    const source = queue.source({ credit: 2 })
    const story: string[] = []
    source.events.subscribe(({ type }) => {
      if (type === 'delivered' || type === 'credit-limited') story.push(type)
    })
    const subscription = source.subscribe()
    await until('the credit is used', () => story.includes('credit-limited'))
    await turn()
    expect(story).toEqual(['delivered', 'delivered', 'credit-limited'])
    subscription.unsubscribe()
    await source.stop({ graceMs: 0 })
  })

  it('F2 a delay of thirty days is stored, and does not fire at once', async () => {
    const { queue } = memoryQueue()
    const waiting = queue.receive({ timeoutMs: 30 })
    await queue.enqueue('a', { delayMs: 30 * 24 * 3_600_000 })
    expect(await waiting).toBeUndefined()
    await expectStats(queue, { delayed: 1 })
  })

  it.each([0, Number.NaN, Number.POSITIVE_INFINITY, -1, 1.5])('F4 a concurrency of %s throws and names itself', (n) => {
    expect(() => mergeMap(() => 1, n)).toThrow(InvalidOptionError)
    expect(() => mergeMap(() => 1, n)).toThrow(`mergeMap.n must be a whole number of 1 or more, not ${n}`)
  })

  it.each([
    ['credit', 0],
    ['graceMs', -1],
    ['drainMs', Number.NaN],
    ['leaseMs', 49],
    ['until', 'never'],
    ['lanes', 4],
  ])('F4 the source option %s = %s throws and names itself', (field, value) => {
    const { queue } = memoryQueue()
    expect(() => queue.source({ [field]: value } as SourceOptions)).toThrow(`source.${field}`)
  })

  it('F6 five thousand messages of one millisecond with random ids come in order', async () => {
    const { queue } = memoryQueue<number>()
    await queue.enqueueAll(
      Array.from({ length: 5_000 }, (_, payload) => ({ payload, id: `${Math.random()}-${payload}` })),
    )
    const seen: number[] = []
    await drain(
      pipe(
        queue.source(),
        concatMap(({ payload }) => void seen.push(payload)),
      ),
    )
    expect(seen).toEqual(Array.from({ length: 5_000 }, (_, index) => index))
  })

  it('F8 with ageing, a steady stream of urgent messages does not starve the one that waits', async () => {
    const { queue } = memoryQueue({ ageing: { stepMs: 20 } })
    await queue.enqueue('low', { priority: 20 })
    const served: string[] = []
    await until('it is served', async () => {
      await queue.enqueue('urgent')
      const delivery = await queue.tryReceive()
      if (delivery) served.push(delivery.payload)
      await delivery?.ack()
      return delivery?.payload === 'low'
    })
    expect(served.length).toBeGreaterThan(1)
  })

  it('F10 many delayed messages, one due per millisecond, cost a bounded number of calls', async () => {
    const { queue, backend } = memoryQueue<number>()
    await queue.enqueueAll(Array.from({ length: 200 }, (_, payload) => ({ payload, delayMs: payload + 1 })))
    const before = backend.calls.length
    let seen = 0
    await run(
      pipe(
        queue.source({ until: 'idle' }),
        mergeMap(() => {
          seen += 1
        }, 10),
      ),
    )
    expect(seen).toBe(200)
    expect(backend.calls.length - before).toBeLessThan(1_200)
  })

  it.each([2 ** 31, 2 ** 32])('F14 leases, delays and order hold across %d milliseconds of uptime', (instant) => {
    const log: string[] = []
    marbles(
      (helpers) => {
        const queue = helpers.testQueue('-', undefined, { leaseMs: 300 })
        const entries = [{ payload: 'late', delayMs: 1_000 }, { payload: 'b', priority: 1 }, { payload: 'a' }]
        at(helpers, instant - 500, () => {
          void queue.enqueueAll(entries)
          const handler = ({ payload, attempt }: Delivery<string>) => {
            log.push(`${helpers.scheduler.frame - instant} ${payload}${attempt}`)
            return NEVER.pipe(takeUntil(timer(1_200)))
          }
          pipe(queue.source(), mergeMap(handler, 2)).subscribe()
        })
        at(helpers, instant + 5_000, () => log.push(`${queue.inspect().stats.ackedTotal} acked`))
      },
      { maxFrames: instant + 6_000 },
    )
    expect(log).toEqual(['-500 a1', '-500 b1', '700 late1', '3 acked'])
  })

  it.each([2 ** 31, Number.MAX_SAFE_INTEGER - 2])(
    'F14 what is numbered around %d is found and kept in order',
    (number) => {
      const log = new SequenceLog<number>()
      const numbers = [-2, -1, 0, 1, 2].map((step) => number + step)
      for (const each of numbers) log.push(each, each)
      expect(log.after(number - 1, 9)).toEqual([number, number + 1, number + 2])
      log.remove(number)
      expect(log.after(number - 2, 9)).toEqual([number - 1, number + 1, number + 2])
      expect(log.size).toBe(4)
    },
  )
})
