import {
  concatMap,
  consume,
  deadLetter,
  drain,
  InvalidOptionError,
  LimitError,
  mergeMap,
  PayloadError,
  pipe,
  type Queue,
  retryLater,
  run,
  type SourceEvent,
  type SourceOptions,
} from 'millrace'
import { mergeMap as rxMergeMap } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { expectStats, memoryQueue, queueOn } from '../support/queues.js'
import { gate, turn, until } from '../support/wait.js'

/** Keeps the event loop from turning. */
function block(ms: number): void {
  const endsAt = performance.now() + ms
  while (performance.now() < endsAt);
}

function eventsOf(source: { events: { subscribe(next: (event: SourceEvent) => void): unknown } }): SourceEvent[] {
  const events: SourceEvent[] = []
  source.events.subscribe((event) => events.push(event))
  return events
}

describe('leases while handling', () => {
  it('B2 a handler that blocks the loop for two leases finds its lease lost at once, and its ack changes nothing', async () => {
    const { queue } = memoryQueue({ leaseMs: 50 })
    await queue.enqueue('a')
    const source = queue.source()
    const events = eventsOf(source)
    const iterator = source[Symbol.asyncIterator]()
    const { value } = await iterator.next()
    block(110)
    expect(value?.signal.aborted).toBe(true)
    expect(value?.signal.reason).toMatchObject({ code: 'ERR_MILLRACE_LEASE_LOST' })
    expect(await value?.ack()).toBe('stale')
    expect(events).toContainEqual({ type: 'lease-expired', id: value?.id })
    await iterator.return?.()
    expect(await queue.receive()).toMatchObject({ attempt: 2 })
  })

  it('B4 a drain of two leases keeps the claim, and it is acked once', async () => {
    const { queue } = memoryQueue({ leaseMs: 60 })
    await queue.enqueue('a')
    const started = gate()
    const stop = new AbortController()
    const running = consume(
      queue.source(),
      async () => {
        started.open()
        await new Promise((resolve) => setTimeout(resolve, 150))
      },
      { signal: stop.signal, drainMs: 2_000 },
    )
    await started.promise
    stop.abort()
    expect(await running).toMatchObject({ acked: 1, settledDuringGrace: 1, released: 0 })
    await expectStats(queue, { ackedTotal: 1, ready: 0 })
  })

  it('B6 a renewal that fails, or finds the message gone, is contained', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 60 })
    await queue.enqueue('a')
    const source = queue.source()
    const events = eventsOf(source)
    const { value } = await source[Symbol.asyncIterator]().next()
    backend.inject({ verb: 'renew', kind: 'fail-request', error: new Error('vanished') })
    await until('the failed renewal is told', () => events.some(({ type }) => type === 'error'))
    await until('a later one restores it', () => events.some(({ type }) => type === 'lease-restored'))
    await queue.purge({ state: 'claimed' })
    await until('the loss is told', () => events.some(({ type }) => type === 'lease-lost'))
    expect(value?.signal.aborted).toBe(true)
    expect(await value?.ack()).toBe('stale')
    await source.stop()
  })

  it('B12 a handler that ignores its cancel loses the message after the grace, and the account says so', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    const started = gate()
    const stop = new AbortController()
    const running = run(
      pipe(
        queue.source(),
        mergeMap(() => {
          started.open()
          return new Promise(() => {})
        }, 1),
      ),
      { signal: stop.signal, graceMs: 20 },
    )
    await started.promise
    stop.abort()
    expect(await running).toMatchObject({ released: 1, acked: 0, abandoned: 0 })
    expect(await queue.tryReceive()).toMatchObject({ attempt: 1, deliveryCount: 2 })
  })

  it('B12 a wedged handler loses its lease at the cap, and is told', async () => {
    const { queue } = memoryQueue({ leaseMs: 60 })
    await queue.enqueue('a')
    const source = queue.source({ maxLeaseMs: 100 })
    const events = eventsOf(source)
    const { value } = await source[Symbol.asyncIterator]().next()
    await until('the cap is told', () => events.some(({ type }) => type === 'stuck'))
    await until('the signal aborts', () => value?.signal.aborted === true)
    expect(value?.signal.reason).toMatchObject({ why: 'capped' })
    expect(await queue.receive()).toMatchObject({ attempt: 2 })
    await source.stop()
  })

  it('B16 a handler of two leases that forwards has one successor', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 60 })
    const next = queueOn(backend)
    await queue.enqueue('a')
    await drain(
      pipe(
        queue.source(),
        mergeMap(async (delivery) => {
          await new Promise((resolve) => setTimeout(resolve, 130))
          await delivery.forward(next, 'b')
        }, 1),
      ),
    )
    expect(await next.size()).toBe(1)
    await expectStats(queue, { forwardedTotal: 1 })
  })

  it('H14 a handler that forgets to settle is told of', async () => {
    const { queue } = memoryQueue({ leaseMs: 50 })
    await queue.enqueueAll([{ payload: 'a', id: 'a' }, { payload: 'b' }])
    const source = queue.source()
    const events = eventsOf(source)
    const subscription = source.subscribe()
    await until('it is told', () => events.some(({ type }) => type === 'stalled'))
    expect(events).toContainEqual({ type: 'stalled', oldestUnsettledId: 'a' })
    expect(events).toContainEqual({ type: 'credit-limited', credit: 1 })
    subscription.unsubscribe()
    await source.stop({ graceMs: 0 })
  })
})

describe('stopping', () => {
  it('D1 close settles when the backend never answers again', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 50 })
    await queue.enqueue('a')
    const delivery = await queue.receive()
    backend.inject({ verb: '*', kind: 'drop-request', times: Number.POSITIVE_INFINITY })
    const closing = queue.close({ graceMs: 0 })
    expect(await closing).toMatchObject({ abandoned: 1 })
    expect(await delivery?.ack()).toBe('stale')
  }, 15_000)

  it('D3 close of an idle queue takes no time', async () => {
    const { queue } = memoryQueue()
    const iterator = queue.source()[Symbol.asyncIterator]()
    const waiting = iterator.next().catch((error: Error) => error.constructor.name)
    await turn()
    const startedAt = performance.now()
    await queue.close()
    expect(performance.now() - startedAt).toBeLessThan(50)
    expect(await waiting).toBe('ClosedError')
  })

  it('D5 after close with a handler that never ends, nothing more is asked of the backend', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 50 })
    await queue.enqueue('a')
    const delivery = await queue.receive()
    await queue.close({ graceMs: 5 })
    const calls = backend.calls.length
    await new Promise((resolve) => setTimeout(resolve, 80))
    expect(backend.calls.length).toBe(calls)
    expect(await delivery?.ack()).toBe('stale')
    expect(backend.calls.length).toBe(calls)
  })

  it('D7 a graceful stop does not abort a handler until the drain is over', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    const source = queue.source()
    const { value } = await source[Symbol.asyncIterator]().next()
    const stopping = source.stop({ drainMs: 5_000 })
    await turn()
    expect(value?.signal.aborted).toBe(false)
    expect(await value?.ack()).toBe('settled')
    expect(await stopping).toEqual({ released: 0, settledDuringGrace: 1, abandoned: 0 })
  })

  it('D11 work goes on after pause and resume, and a resume while closing revives nothing', async () => {
    const { queue } = memoryQueue()
    await queue.pause()
    await queue.enqueue('a')
    const waiting = queue.receive()
    await turn()
    await expectStats(queue, { ready: 1, claimed: 0, paused: true })
    await queue.resume()
    expect((await waiting)?.payload).toBe('a')
    const closing = queue.close({ graceMs: 0 })
    await expect(queue.resume()).rejects.toMatchObject({ code: 'ERR_MILLRACE_CLOSED' })
    expect(await closing).toMatchObject({ released: 1 })
  })

  it('D13 a shutdown is no failure: the only attempt is not spent', async () => {
    const { queue } = memoryQueue({ maxDeliveries: 1 })
    await queue.enqueue('a')
    const started = gate()
    const stop = new AbortController()
    const running = run(
      pipe(
        queue.source(),
        mergeMap(async ({ signal }) => {
          started.open()
          await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
        }, 1),
      ),
      { signal: stop.signal },
    )
    await started.promise
    stop.abort()
    expect(await running).toMatchObject({ released: 1, deadLettered: 0 })
    await expectStats(queue, { ready: 1, dead: 0 })
    expect(await queue.tryReceive()).toMatchObject({ attempt: 1 })
  })

  it('D15 the second signal forces', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    const started = gate()
    const stop = new AbortController()
    const kill = new AbortController()
    const running = run(
      pipe(
        queue.source(),
        mergeMap(() => {
          started.open()
          return new Promise(() => {})
        }, 1),
      ),
      { signal: stop.signal, killSignal: kill.signal, drainMs: 60_000, graceMs: 60_000 },
    )
    await started.promise
    stop.abort()
    kill.abort()
    expect(await running).toMatchObject({ released: 1 })
  })
})

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
    const { queue } = memoryQueue({ ageing: { stepMs: 1 } })
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
})

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
})
