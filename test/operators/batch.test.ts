import { batch, collect, type Delivery, mergeMap, pipe, run } from 'millrace'
import { describe, expect, it } from 'vitest'
import { expectStats, memoryQueue } from '../support/queues.js'
import { turn, until } from '../support/wait.js'

/** A queue that holds these payloads. */
async function filled<T>(...payloads: T[]) {
  const { queue, backend } = memoryQueue<T>()
  await queue.enqueueAll(payloads.map((payload, index) => ({ payload, id: `m${index}` })))
  return { queue, backend, source: queue.source({ until: 'empty' }) }
}

describe('batch', () => {
  it('gathers by size and by time, and a handler settles every member', async () => {
    const { source, queue } = await filled(1, 2, 3, 4, 5)
    const sizes = await collect(
      pipe(
        source,
        batch({ size: 2, withinMs: 5 }),
        mergeMap((ds) => ds.map((d) => d.payload).join(), 1),
      ),
    )
    expect(sizes).toEqual(['1,2', '3,4', '5'])
    await expectStats(queue, { ackedTotal: 5 })
  })

  it('members settle by themselves too, and a failure settles only the rest', async () => {
    const { source, queue } = await filled(1, 2, 3)
    await run(
      pipe(
        source,
        batch({ size: 3, withinMs: 5 }),
        mergeMap(async (ds) => {
          await ds[0]?.ack()
          throw new Error('the rest')
        }, 1),
      ),
    )
    await expectStats(queue, { ackedTotal: 1, delayed: 2 })
  })

  it('what has gathered when it is stopped goes back unseen', async () => {
    const { queue } = await filled(1, 2)
    const source = queue.source()
    const iterator = pipe(source, batch({ size: 3, withinMs: 60_000 }))[Symbol.asyncIterator]()
    const waiting = iterator.next()
    await until('both are gathered', async () => (await queue.stats()).claimed === 2)
    await source.stop()
    expect(await waiting).toEqual({ done: true, value: undefined })
    expect(await queue.tryReceive()).toMatchObject({ payload: 1, attempt: 1, deliveryCount: 1 })
  })

  it('what has gathered when the loop is left goes back unseen too', async () => {
    const { queue } = await filled(1, 2, 3)
    const iterator = pipe(queue.source(), batch({ size: 2, withinMs: 60_000 }))[Symbol.asyncIterator]()
    const { value } = await iterator.next()
    expect(value?.map((d) => d.payload)).toEqual([1, 2])
    const waiting = iterator.next()
    await until('the third is gathered', async () => (await queue.stats()).claimed === 3)
    await iterator.return?.()
    expect(await waiting).toEqual({ done: true, value: undefined })
    await expectStats(queue, { claimed: 0, ready: 3 })
    expect(await queue.tryReceive()).toMatchObject({ payload: 1, attempt: 2 })
  })

  it('an observer that cannot ask gets the next batch when the last is settled', async () => {
    const { queue } = await filled(1, 2, 3, 4)
    const source = queue.source()
    const batches: Delivery<number>[][] = []
    const subscription = pipe(source, batch({ size: 2, withinMs: 5 })).subscribe((ds) => batches.push(ds))
    await until('the first came', () => batches.length === 1)
    await turn()
    await expectStats(queue, { claimed: 2, ready: 2 })
    await Promise.all(batches[0]?.map((d) => d.ack()) ?? [])
    await until('the second came', () => batches.length === 2)
    subscription.unsubscribe()
    await source.stop({ graceMs: 0 })
  })

  it('needs both bounds', () => {
    expect(() => batch({ size: 2 } as never)).toThrow('batch.withinMs')
    expect(() => batch({ size: 0, withinMs: 1 })).toThrow('batch.size')
  })
})
