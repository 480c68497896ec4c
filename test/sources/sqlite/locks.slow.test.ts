/** Another process that holds the lock of the file for long. */
import { Queue } from 'millrace'
import { describe, expect, it } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import { until } from '../../support/wait.js'
import { backendOn, connect, expectWhole, freshPath, lock, queueOn } from './rig.js'

const hold = await bundled(new URL('./children/hold.ts', import.meta.url))

describe('a process that holds the lock for 3 s', () => {
  it('B18 costs no claim: with a lease of 5 s it is renewed, and settled', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path), { leaseMs: 5_000 })
    const other = queueOn(backendOn(path))
    await queue.enqueue('a')
    const delivery = await queue.receive()
    if (delivery === undefined) throw new Error('it was ready')
    const holder = new Child<'held'>(hold, [path, '3000'])
    await holder.hear()
    const before = delivery.leaseExpiresAt
    await holder.end()
    // Longer than the first lease, by the renewals alone.
    await until('the first lease would be over', () => Date.now() > before + 500, 10_000)
    expect(delivery.leaseExpiresAt).toBeGreaterThan(before)
    expect(delivery.signal.aborted).toBe(false)
    expect(await other.tryReceive()).toBeUndefined()
    expect(await delivery.ack()).toBe('settled')
    expect(await queue.stats()).toMatchObject({ ackedTotal: 1, ready: 0, dead: 0 })
  })

  it('B18, S1 is waited for by whatever is asked meanwhile', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path))
    await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
    const held = await queue.receive()
    const holder = new Child<'held'>(hold, [path, '3000'])
    await holder.hear()
    const [enqueued, acked, received, stats] = await Promise.all([
      queue.enqueue('c'),
      held?.ack(),
      queue.tryReceive(),
      queue.stats(),
    ])
    expect(enqueued.status).toBe('enqueued')
    expect(acked).toBe('settled')
    expect(received?.payload).toBe('b')
    expect(stats.enqueuedTotal).toBe(3)
    await holder.end()
  })

  it('B18, D1 a process that is killed while it holds the lock holds it no more', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path))
    await queue.enqueue('a')
    const holder = new Child<'held'>(hold, [path, '60000'])
    await holder.hear()
    const received = queue.receive({ timeoutMs: 10_000 })
    await holder.kill()
    expect((await received)?.payload).toBe('a')
  })
})

describe('a lock that is never let go', () => {
  it('S10, D1 every call says within its bound that the file cannot be reached, closing settles, nothing is lost', async () => {
    const path = freshPath()
    const queue = new Queue<string>('q', { backend: backendOn(path, { busyTimeoutMs: 500 }) })
    await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
    const held = await queue.receive()
    const holder = lock(path)
    const began = performance.now()
    const answers = await Promise.allSettled<unknown>([
      queue.enqueue('c'),
      queue.tryReceive(),
      queue.receive({ timeoutMs: 1_000 }),
      queue.stats(),
      queue.size(),
      queue.purge(),
      queue.outcome('a', { timeoutMs: 0 }),
      held?.ack(),
    ])
    const codes = answers.map((answer) => (answer.status === 'rejected' ? answer.reason.code : answer.value))
    expect(new Set(codes.slice(0, -1))).toEqual(new Set(['ERR_MILLRACE_BACKEND_UNAVAILABLE']))
    expect(codes.at(-1)).toBe('ERR_MILLRACE_SETTLEMENT_UNKNOWN')
    expect(performance.now() - began).toBeLessThan(17_000)
    const released = await queue.close({ graceMs: 100 })
    expect(released).toMatchObject({ abandoned: expect.any(Number) })
    holder.release()
    const after = queueOn(backendOn(path))
    expect(await after.stats()).toMatchObject({ ready: 1, claimed: 1, enqueuedTotal: 2 })
    expectWhole(connect(path))
  })
})
