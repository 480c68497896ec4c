import { getEventListeners } from 'node:events'
import { BackendUnavailableError, ClosedError } from 'millrace'
import { describe, expect, it } from 'vitest'
import { expectStats, memoryQueue, queueOn } from '../support/queues.js'
import { gate, turn } from '../support/wait.js'

describe('waiting and cancelling', () => {
  it('A2 an aborted wait swallows nothing: the next wait on another source gets the message at once', async () => {
    const { queue } = memoryQueue()
    const stop = new AbortController()
    const waiting = queue.receive({ signal: stop.signal })
    await turn()
    stop.abort()
    await expect(waiting).rejects.toThrow('cancelled')
    await queue.enqueue('a')
    const delivery = await queue.receive({ timeoutMs: 1_000 })
    expect(delivery).toMatchObject({ payload: 'a', attempt: 1, deliveryCount: 1 })
  })

  it('A4 an abort in the microtask after the claim reply releases the message, uncounted', async () => {
    const { queue, backend } = memoryQueue()
    await queue.enqueue('a')
    const claim = backend.inject({ verb: 'claim', kind: 'hold-reply' })
    const stop = new AbortController()
    const waiting = queue.receive({ signal: stop.signal })
    await claim.reached
    stop.abort()
    claim.release()
    await expect(waiting).rejects.toMatchObject({ name: 'AbortError' })
    await expectStats(queue, { ready: 1, claimed: 0 })
    expect(await queue.tryReceive()).toMatchObject({ attempt: 1, deliveryCount: 1 })
  })

  it('A6 after an aborted wait the same backend answers promptly', async () => {
    const { queue } = memoryQueue()
    const stop = new AbortController()
    const waiting = queue.receive({ signal: stop.signal }).catch((error: Error) => error.name)
    stop.abort()
    expect(await waiting).toBe('AbortError')
    expect(await queue.enqueue('a')).toMatchObject({ status: 'enqueued' })
  })

  it('A8 a source that starts while the backend is down waits, can be aborted, and delivers when it is up', async () => {
    const { queue, backend } = memoryQueue()
    await queue.enqueue('a')
    const down = backend.inject({ verb: 'claim', kind: 'fail-request', times: Number.POSITIVE_INFINITY })
    const stop = new AbortController()
    const aborted = queue.receive({ signal: stop.signal }).catch((error: unknown) => error)
    const waiting = queue.receive()
    await down.reached
    stop.abort(new Error('enough'))
    down.remove()
    expect((await waiting)?.payload).toBe('a')
    expect(await aborted).toMatchObject({ name: 'AbortError', cause: { message: 'enough' } })
  })

  it('A8 a bounded wait that runs out while the backend is down throws: down is not empty', async () => {
    const { queue, backend } = memoryQueue()
    await queue.stats()
    const outage = backend.inject({ verb: 'claim', kind: 'fail-request', times: Number.POSITIVE_INFINITY })
    await expect(queue.receive({ timeoutMs: 30 })).rejects.toBeInstanceOf(BackendUnavailableError)
    outage.remove()
  })

  it('A16 a delayed message that comes due during an idle wait is delivered then, without a new enqueue', async () => {
    const { queue } = memoryQueue()
    const waiting = queue.receive()
    await turn()
    const sentAt = performance.now()
    await queue.enqueue('later', { delayMs: 60 })
    await waiting
    expect(performance.now() - sentAt).toBeGreaterThan(55)
  })

  it('A18 a take against {offer, abort} in the same tick: nothing is lost, 10 000 times', async () => {
    const { queue } = memoryQueue<number>()
    let taken = 0
    for (let round = 0; round < 10_000; round += 1) {
      const stop = new AbortController()
      const taking = queue.take({ signal: stop.signal }).then(
        () => 1,
        () => 0,
      )
      if (round % 3 === 0) await Promise.resolve()
      const offering = queue.enqueue(round)
      if (round % 2 === 0) await Promise.resolve()
      stop.abort()
      await offering
      taken += await taking
    }
    await expectStats(queue, { ready: 10_000 - taken, claimed: 0, ackedTotal: taken })
  }, 30_000)

  it('A20 a wait against close in the same tick settles', async () => {
    const { queue } = memoryQueue()
    const waiting = queue.receive()
    const closing = queue.close()
    await expect(waiting).rejects.toBeInstanceOf(ClosedError)
    expect(await closing).toEqual({ released: 0, settledDuringGrace: 0, abandoned: 0 })
  })

  it('A22 a queue that is made and dropped rejects nothing, even where the backend is down', async () => {
    const { queue, backend } = memoryQueue()
    backend.inject({ verb: '*', kind: 'fail-request', times: Number.POSITIVE_INFINITY })
    expect(backend.calls).toEqual([])
    queue.source()
    await turn()
    expect(backend.calls).toEqual([])
  })

  it('A30 cancelling a consumer twice is harmless', async () => {
    const { queue } = memoryQueue()
    const source = queue.source()
    const subscription = source.subscribe()
    subscription.unsubscribe()
    subscription.unsubscribe()
    expect(await source.stop()).toEqual(await source.stop())
  })

  it('E5 a polyfilled signal, which AbortSignal.any refuses, aborts a wait', async () => {
    const { queue } = memoryQueue()
    const listeners: (() => void)[] = []
    const signal = {
      aborted: false,
      reason: 'poly',
      addEventListener: (_type: string, work: () => void) => listeners.push(work),
      removeEventListener: () => {},
    }
    const waiting = queue.receive({ signal: signal as unknown as AbortSignal })
    signal.aborted = true
    for (const work of listeners) work()
    await expect(waiting).rejects.toMatchObject({ name: 'AbortError', cause: 'poly' })
  })

  it('E7 an already aborted signal rejects with its reason, without I/O, and leaves nothing unhandled', async () => {
    const { queue, backend } = memoryQueue()
    const reason = new Error('before')
    await expect(queue.receive({ signal: AbortSignal.abort(reason) })).rejects.toMatchObject({ cause: reason })
    await expect(queue.enqueue('a', { signal: AbortSignal.abort(reason) })).rejects.toMatchObject({ cause: reason })
    await expect(
      queue
        .source({ signal: AbortSignal.abort(reason) })
        [Symbol.asyncIterator]()
        .next(),
    ).rejects.toMatchObject({ cause: reason })
    expect(backend.calls).toEqual([])
  })

  it('E9 return() before the first next() opens nothing, and each iterator is its own', async () => {
    const { queue, backend } = memoryQueue()
    await queue.enqueue('a')
    const before = backend.calls.length
    const source = queue.source()
    const iterator = source[Symbol.asyncIterator]()
    expect(await iterator.return?.()).toEqual({ done: true, value: undefined })
    expect(await iterator.next()).toEqual({ done: true, value: undefined })
    expect(backend.calls.length).toBe(before)
    const second = source[Symbol.asyncIterator]()
    const { value } = await second.next()
    await value?.ack()
    await second.return?.()
    await expectStats(queue, { ackedTotal: 1 })
  })

  it('E13 all pending nexts settle when the iterator is returned', async () => {
    const { queue } = memoryQueue()
    const iterator = queue.source()[Symbol.asyncIterator]()
    const nexts = [iterator.next(), iterator.next(), iterator.next()]
    await turn()
    await iterator.return?.()
    expect(await Promise.all(nexts)).toEqual(Array.from({ length: 3 }, () => ({ done: true, value: undefined })))
    await queue.enqueue('a')
    await expectStats(queue, { ready: 1, claimed: 0 })
  })

  it('E1 many waits on one signal share a listener, and it is gone when they are', async () => {
    const { queue } = memoryQueue()
    const warnings: Error[] = []
    const warn = (warning: Error) => warnings.push(warning)
    process.on('warning', warn)
    const stop = new AbortController()
    const waits = Array.from({ length: 50 }, () => queue.receive({ signal: stop.signal, timeoutMs: 20 }))
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(1)
    expect(await Promise.all(waits)).toEqual(Array.from({ length: 50 }, () => undefined))
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(0)
    await turn()
    process.off('warning', warn)
    expect(warnings).toEqual([])
  })

  it('H16 two hundred idle sources cost one claim for one message', async () => {
    const { queue, backend } = memoryQueue()
    const sources = Array.from({ length: 200 }, () => queue.source())
    const nexts = sources.map((source) => source[Symbol.asyncIterator]())
    const pending = nexts.map((iterator) => iterator.next().then(({ value }) => value?.ack()))
    await turn()
    const before = backend.calls.filter((verb) => verb === 'claim').length
    await queue.enqueue('a')
    await Promise.race(pending)
    await turn()
    const claims = backend.calls.filter((verb) => verb === 'claim').length - before
    expect(claims).toBeLessThanOrEqual(3)
    await Promise.all(nexts.map((iterator) => iterator.return?.()))
    await Promise.all(pending)
  })

  it('H6 waiting for a message that is then removed, or had finished before, settles', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a', { id: 'a' })
    const removed = queue.outcome('a')
    await turn()
    await queue.cancel('a')
    expect(await removed).toEqual({ state: 'cancelled' })
    await queue.enqueue('b', { id: 'b' })
    const delivery = await queue.receive()
    await delivery?.ack({ ok: true })
    expect(await queue.outcome('b')).toEqual({ state: 'done', result: { ok: true } })
    expect(await queue.outcome('never', { timeoutMs: 10 })).toEqual({ state: 'unknown' })
  })

  it('H16 a hint is not lost when its waiter is cancelled before it claims', async () => {
    const { queue } = memoryQueue()
    for (let round = 0; round < 200; round += 1) {
      const stop = new AbortController()
      const first = queue.take({ signal: stop.signal }).catch(() => undefined)
      const second = queue.take()
      await turn()
      const offering = queue.enqueue(String(round))
      stop.abort()
      await offering
      if ((await first) === undefined) expect(await second).toBe(String(round))
      else {
        await queue.enqueue('rest')
        await second
      }
    }
  })

  it('A28 a claim that fails for good ends the iteration with that error, and the process lives', async () => {
    const { queue, backend } = memoryQueue()
    await queue.stats()
    backend.inject({ verb: 'claim', kind: 'fail-request', error: new Error('corrupt') })
    await expect(queue.source()[Symbol.asyncIterator]().next()).rejects.toThrow('corrupt')
    await queue.enqueue('a')
    expect((await queue.receive())?.payload).toBe('a')
  })

  it('E15 after an error in the middle a new source goes on with the rest', async () => {
    const { queue, backend } = memoryQueue<number>()
    await queue.enqueueAll(Array.from({ length: 1_000 }, (_, payload) => ({ payload })))
    const seen: number[] = []
    const consume = async () => {
      for await (const delivery of queue.source({ until: 'empty' })) {
        seen.push(delivery.payload)
        await delivery.ack()
      }
    }
    backend.inject({ verb: 'claim', kind: 'fail-request', nth: 500, error: new Error('broken') })
    await expect(consume()).rejects.toThrow('broken')
    await consume()
    expect(seen).toEqual(Array.from({ length: 1_000 }, (_, index) => index))
  })

  it('B22 a claim that is never answered is asked again', async () => {
    const { queue, backend } = memoryQueue()
    await queue.enqueue('a')
    const lost = backend.inject({ verb: 'claim', kind: 'fail-reply' })
    expect(await queue.receive()).toMatchObject({ payload: 'a', attempt: 1, deliveryCount: 1 })
    await lost.reached
    await expectStats(queue, { claimed: 1 })
  })

  it('D9 a queue that is closed right after it was made opens nothing', async () => {
    const { backend } = memoryQueue()
    const queue = queueOn(backend)
    await queue.close()
    expect(backend.calls).toEqual(['close'])
    await expect(queue.enqueue('a')).rejects.toBeInstanceOf(ClosedError)
  })

  it('E3 a wake-up costs the same however many have waited before', async () => {
    const { queue } = memoryQueue<number>()
    const stop = new AbortController()
    for (let round = 0; round < 5_000; round += 1) {
      const taking = queue.take({ signal: stop.signal })
      await queue.enqueue(round)
      expect(await taking).toBe(round)
    }
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(0)
  })

  it('A12 an abort while the backend is down settles and leaves no timer', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 50 })
    await queue.stats()
    const down = backend.inject({ verb: 'claim', kind: 'drop-request', times: Number.POSITIVE_INFINITY })
    const stop = new AbortController()
    const waiting = queue.receive({ signal: stop.signal })
    await down.reached
    const done = gate<string>()
    waiting.catch((error: Error) => done.open(error.name))
    stop.abort()
    expect(await done.promise).toBe('AbortError')
    const calls = backend.calls.length
    await turn()
    expect(backend.calls.length).toBe(calls)
  })
})
