import { consume, type Delivery, drain, mergeMap, pipe, Queue, run } from 'millrace'
import { marbles } from 'millrace/testing'
import { interval, last, NEVER, type Observable, of, take, tap } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { hinted } from '../../src/testing/conformance/hinted.js'
import { eventsOf } from '../support/events.js'
import { expectStats, memoryQueue, queueOn } from '../support/queues.js'
import { gate, until } from '../support/wait.js'

/** Keeps the event loop from turning. */
function block(ms: number): void {
  const endsAt = performance.now() + ms
  while (performance.now() < endsAt);
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
    const { queue } = memoryQueue({ leaseMs: 300 })
    await queue.enqueue('a')
    const started = gate()
    const stop = new AbortController()
    const running = consume(
      queue.source(),
      async () => {
        started.open()
        await new Promise((resolve) => setTimeout(resolve, 700))
      },
      { signal: stop.signal, drainMs: 2_000 },
    )
    await started.promise
    stop.abort()
    expect(await running).toMatchObject({ acked: 1, settledDuringGrace: 1, released: 0 })
    await expectStats(queue, { ackedTotal: 1, ready: 0 })
  })

  it('B6 a renewal that fails, or finds the message gone, is contained', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 300 })
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

  it('N71 a cancel that a renewal on its way cannot know of yet aborts the signal once that is answered', async () => {
    // The next renewal in turn comes too late for this test: only the cancel's own can abort the signal.
    const { queue, backend } = memoryQueue({ leaseMs: 120_000 })
    await queue.enqueueAll(['a', 'b'].map((id) => ({ payload: id, id })))
    const source = queue.source()
    const iterator = source[Symbol.asyncIterator]()
    const [{ value: first }, { value: second }] = [await iterator.next(), await iterator.next()]
    const renewal = backend.inject({ verb: 'renew', kind: 'hold-reply' })
    expect(await queue.cancel('a')).toBe('cancelling')
    await renewal.reached
    expect(await queue.cancel('b')).toBe('cancelling')
    renewal.release()
    await until('both signals abort', () => first?.signal.aborted === true && second?.signal.aborted === true)
    expect(second?.signal.reason).toMatchObject({ code: 'ERR_MILLRACE_MESSAGE_CANCELLED' })
    await source.stop({ graceMs: 0 })
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

  it('B12 nor is its claim kept alive by hints that come again and again', async () => {
    const hints = hinted(memoryQueue().backend)
    const queue = new Queue<string>('q', { backend: hints.backend, leaseMs: 60 })
    await queue.enqueue('a')
    const source = queue.source({ maxLeaseMs: 100 })
    const { value } = await source[Symbol.asyncIterator]().next()
    await until('the signal aborts', () => {
      hints.tell({ kind: 'up' })
      return value?.signal.aborted === true
    })
    expect(value?.signal.reason).toMatchObject({ why: 'capped' })
    await source.stop()
  })

  it('B16 a handler of two leases that forwards has one successor', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 300 })
    const next = queueOn(backend)
    await queue.enqueue('a')
    await drain(
      pipe(
        queue.source(),
        mergeMap(async (delivery) => {
          await new Promise((resolve) => setTimeout(resolve, 650))
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

  it('B20 a handler keeps its lease by proof of life, and one that is wedged loses it although the loop is free', () => {
    const log: string[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)', undefined, { leaseMs: 300 })
      const handler = (delivery: Delivery<string>): Observable<unknown> => {
        const { id, attempt, signal } = delivery
        signal.addEventListener('abort', () => log.push(`${id}${attempt} ${signal.reason.why}`))
        if (id === 'b') return attempt === 1 ? NEVER : of(id)
        return interval(800).pipe(
          tap((step) => delivery.progress(step)),
          take(10),
          last(),
        )
      }
      const source = queue.source({ maxLeaseMs: 1_000 })
      source.events.subscribe((event) => {
        if (event.type === 'settled') log.push(`${event.id} ${event.as}`)
        if (event.type === 'stuck') log.push(`${event.id} stuck`)
      })
      pipe(source, mergeMap(handler, 2)).subscribe()
      helpers.expectSubscriptions(queue.claimsOf('a')).toBe('^ 7999ms !')
    })
    expect(log).toEqual(['b stuck', 'b1 capped', 'b acked', 'a acked'])
  })
})
