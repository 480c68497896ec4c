import { bytes, collect, concatMap, filter, InvalidOptionError, mapPayload, pipe } from 'millrace'
import { describe, expect, it } from 'vitest'
import { expectStats, memoryQueue } from '../support/queues.js'
import { until } from '../support/wait.js'

/** A queue that holds these payloads. */
async function filled<T>(...payloads: T[]) {
  const { queue, backend } = memoryQueue<T>()
  await queue.enqueueAll(payloads.map((payload, index) => ({ payload, id: `m${index}` })))
  return { queue, backend, source: queue.source({ until: 'empty' }) }
}

describe('mapPayload and filter', () => {
  it('mapPayload changes the payload and keeps the claim; a throw is a failure of that delivery alone', async () => {
    const { source, queue } = await filled('1', 'x', '3')
    const mapped = mapPayload((text: string) => {
      if (text === 'x') throw new Error('not a number')
      return Number(text)
    })
    expect(
      await collect(
        pipe(
          source,
          mapped,
          concatMap(({ payload }) => payload + 1),
        ),
      ),
    ).toEqual([2, 4])
    await expectStats(queue, { ackedTotal: 2, delayed: 1 })
  })

  it.each([
    ['ack', { ackedTotal: 3 }],
    ['requeue', { ackedTotal: 1, delayed: 2 }],
    ['dead-letter', { ackedTotal: 1, dead: 2 }],
  ] as const)('filter settles what does not pass by %s', async (otherwise, stats) => {
    const { source, queue } = await filled(1, 2, 3)
    const passed = await collect(
      pipe(
        source,
        filter(({ payload }) => payload === 2, { otherwise }),
        concatMap(({ payload }) => payload),
      ),
    )
    expect(passed).toEqual([2])
    await expectStats(queue, stats)
  })

  it('filter asks for another in place of what it settled, also where the observer cannot ask', async () => {
    const { queue } = await filled(1, 2, 3, 4)
    const seen: number[] = []
    const source = queue.source()
    const subscription = pipe(
      source,
      filter(({ payload }) => payload % 2 === 0, { otherwise: 'ack' }),
    ).subscribe((delivery) => {
      seen.push(delivery.payload)
      void delivery.ack()
    })
    await until('both came', () => seen.length === 2)
    subscription.unsubscribe()
    await source.stop()
    await expectStats(queue, { ackedTotal: 4 })
  })

  it('a predicate that throws fails the delivery', async () => {
    const { source, queue } = await filled(1)
    const broken = filter<number>(
      () => {
        throw new Error('broken')
      },
      { otherwise: 'ack' },
    )
    expect(
      await collect(
        pipe(
          source,
          broken,
          concatMap(() => 1),
        ),
      ),
    ).toEqual([])
    await expectStats(queue, { delayed: 1 })
  })

  it('filter without otherwise is refused', () => {
    expect(() => filter(() => true, {} as never)).toThrow(InvalidOptionError)
  })
})

it('bytes() keeps bytes, and refuses anything else', async () => {
  const { queue } = memoryQueue<Uint8Array>({ codec: bytes() })
  const payload = Uint8Array.of(0, 1, 255, 0)
  await queue.enqueue(payload)
  expect((await queue.receive())?.payload).toEqual(payload)
  await expect(queue.enqueue('text' as never)).rejects.toThrow('payload must be a Uint8Array, not "text"')
})
