import {
  BackendError,
  collect,
  consume,
  deadLetter,
  drain,
  LimitError,
  mergeMap,
  PayloadError,
  pipe,
  type Queue,
  retryLater,
  run,
} from 'millrace'
import { describe, expect, it } from 'vitest'
import { eventsOf } from '../support/events.js'
import { expectStats, memoryQueue, queueOn } from '../support/queues.js'

describe('payloads and ids', () => {
  it('G2 the same id after completion is a duplicate while its outcome is retained, and says so', async () => {
    const { queue } = memoryQueue({ retention: { maxOutcomes: 1 } })
    await queue.enqueue('a', { id: 'x' })
    await (await queue.receive())?.ack()
    expect(await queue.enqueue('b', { id: 'x' })).toEqual({ id: 'x', status: 'duplicate' })
    await queue.enqueue('c', { id: 'y' })
    await (await queue.receive())?.ack()
    expect(await queue.enqueue('b', { id: 'x' })).toEqual({ id: 'x', status: 'enqueued' })
  })

  it('G4 a purged id is free again', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a', { id: 'x' })
    expect(await queue.purge()).toBe(1)
    expect(await queue.enqueue('a', { id: 'x' })).toMatchObject({ status: 'enqueued' })
    await (await queue.receive())?.deadLetter('no')
    expect(await queue.deadLetters.purge('x')).toBe(true)
    expect(await queue.enqueue('a', { id: 'x' })).toMatchObject({ status: 'enqueued' })
  })

  class Money {
    constructor(readonly cents: number) {}
  }
  const cycle: { self?: unknown } = {}
  cycle.self = cycle
  it.each([
    ['payload.n', { n: 1n }],
    ['payload.at', { at: new Date(0) }],
    ['payload.price', { price: new Money(5) }],
    ['payload.list[1]', { list: [1, undefined] }],
    ['payload.rate', { rate: Number.NaN }],
    ['payload.tags', { tags: new Set([1]) }],
    ['payload.run', { run: () => 1 }],
    ['payload.self', cycle],
    ['payload', undefined],
    ['payload', Symbol('s')],
  ])('G6 what JSON would change is refused, naming %s', async (field, payload) => {
    const { queue } = memoryQueue<unknown>()
    await expect(queue.enqueue(payload)).rejects.toBeInstanceOf(PayloadError)
    await expect(queue.enqueue(payload)).rejects.toMatchObject({ field })
    await expectStats(queue as Queue<unknown>, { enqueuedTotal: 0 })
  })

  it('G8 a payload over the limit is refused before it is stored', async () => {
    const { queue } = memoryQueue({ limits: { maxPayloadBytes: 1_000 } })
    await expect(queue.enqueue('x'.repeat(1_000))).rejects.toBeInstanceOf(LimitError)
    await expect(queue.enqueueAll([{ payload: 'ok' }, { payload: 'x'.repeat(2_000) }])).rejects.toThrow(
      'maxPayloadBytes allows 1000, not 2002',
    )
    await expectStats(queue, { enqueuedTotal: 0 })
  })

  it('H2 when the queue for dead letters is full, the source keeps the message and the refusal is told', async () => {
    const { queue, backend } = memoryQueue()
    const full = queueOn(backend, { limits: { maxLength: 1 } })
    await full.enqueue('there')
    await queue.enqueue('a')
    const source = queue.source({ until: 'empty' })
    const events = eventsOf(source)
    await run(
      pipe(
        source,
        deadLetter({ to: full }),
        mergeMap(() => {
          throw new Error('no')
        }, 1),
      ),
    )
    expect(events).toContainEqual({
      type: 'error',
      error: expect.objectContaining({ code: 'ERR_MILLRACE_QUEUE_FULL' }),
    })
    await expectStats(queue, { delayed: 1, forwardedTotal: 0 })
    expect(await full.size()).toBe(1)
  })

  it('H4 the policies hold on every way to fail', async () => {
    const { queue, backend } = memoryQueue()
    const refused = queueOn(backend)
    const boom = () => {
      throw new Error('boom')
    }
    const flow = () => pipe(queue.source({ until: 'empty' }), deadLetter({ to: refused }))
    await queue.enqueue('thrown')
    await run(pipe(flow(), mergeMap(boom, 1)))
    await queue.enqueue('failed by hand')
    for await (const delivery of flow()) await delivery.fail(new Error('by hand'))
    await queue.enqueue('consumed')
    await consume(flow(), boom)
    expect(await refused.size()).toBe(3)
    await expectStats(queue, { forwardedTotal: 3, ready: 0 })
  })

  it('N37 a handler that always fails ends in the dead letters, with growing delays', async () => {
    const { queue } = memoryQueue({ maxDeliveries: 3 })
    await queue.enqueue('a', { id: 'a' })
    const delays: number[] = []
    const backoff = (attempt: number) => {
      delays.push(attempt * 5)
      return attempt * 5
    }
    await run(
      pipe(
        queue.source({ until: 'idle' }),
        retryLater(backoff),
        mergeMap(({ attempt }) => {
          throw new Error(`attempt ${attempt}`)
        }, 1),
      ),
    )
    expect(delays).toEqual([5, 10, 15])
    for await (const letter of queue.deadLetters) {
      expect(letter).toMatchObject({ id: 'a', attempts: 3, reason: 'Error: attempt 3' })
      expect(letter.errors).toHaveLength(3)
    }
    await expectStats(queue, { dead: 1 })
  })

  it('F12 a message whose payload is gone does not hold up those behind it, and is told of', async () => {
    const { queue, backend } = memoryQueue()
    await queue.stats()
    const store = backend.open(queue.name, { close: () => Promise.resolve() })
    const hollow = { id: 'hollow', bytes: new Uint8Array(), priority: 0, delayMs: 0 }
    await store.enqueue([hollow], { session: 'by hand', seq: 1, floor: 1 })
    await store.close()
    await queue.enqueue('behind')
    const source = queue.source({ until: 'empty' })
    const events = eventsOf(source)
    const seen = pipe(
      source,
      mergeMap(({ payload }) => payload, 1),
    )
    expect(await collect(seen)).toEqual(['behind'])
    expect(events).toContainEqual(expect.objectContaining({ type: 'decode-failed', id: 'hollow' }))
    await expectStats(queue, { dead: 1, ready: 0 })
  })

  it('G10 a store that is out of room refuses by name, at once, and what is in it stays whole', async () => {
    const { queue, backend } = memoryQueue()
    await queue.enqueue('there')
    const full = new BackendError('out of memory')
    const enqueue = backend.inject({ verb: 'enqueue', kind: 'fail-request', error: full })
    await expect(queue.enqueueAll([{ payload: 'a', id: 'a' }, { payload: 'b' }])).rejects.toThrow('out of memory')
    await enqueue.reached
    expect(backend.calls.filter((verb) => verb === 'enqueue')).toHaveLength(2)
    await expectStats(queue, { ready: 1, enqueuedTotal: 1 })
    expect(await queue.enqueue('a', { id: 'a' })).toMatchObject({ status: 'enqueued' })
    expect([await queue.tryTake(), await queue.tryTake(), await queue.tryTake()]).toEqual(['there', 'a', undefined])
    await expectStats(queue, { ackedTotal: 2, enqueuedTotal: 2 })
  })

  it('G12 acks whose replies are lost while old outcomes are forgotten leave nothing behind', async () => {
    const ids = Array.from({ length: 20 }, (_, index) => `id ${index}`)
    const { queue, backend } = memoryQueue({
      retention: { maxOutcomes: 2 },
      limits: { maxLength: ids.length, maxBytes: ids.length * '"x"'.length },
    })
    const entries = ids.map((id) => ({ payload: 'x', id }))
    for (let round = 1; round <= 2; round += 1) {
      // The second round has room, and free ids, only where the first left nothing.
      const statuses = (await queue.enqueueAll(entries)).map(({ status }) => status)
      expect(statuses).toEqual(ids.map(() => 'enqueued'))
      backend.inject({ verb: 'settle', kind: 'fail-reply' })
      await drain(
        pipe(
          queue.source(),
          mergeMap(() => {}, 5),
        ),
      )
      await expectStats(queue, { ackedTotal: round * ids.length, ready: 0, claimed: 0, dead: 0 })
      const states = await Promise.all(ids.map(async (id) => (await queue.outcome(id, { timeoutMs: 0 })).state))
      expect(states.filter((state) => state === 'done')).toHaveLength(2)
      expect(states.filter((state) => state === 'unknown')).toHaveLength(18)
      await queue.configure({ retention: { maxOutcomes: 0 } })
      await queue.configure({ retention: { maxOutcomes: 2 } })
    }
  })
})
