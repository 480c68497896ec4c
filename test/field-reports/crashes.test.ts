import { marbles } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { at } from '../marbles/handlers.js'
import { doomed } from '../support/clients.js'
import { expectStats, memoryQueue } from '../support/queues.js'
import { until } from '../support/wait.js'

describe('consumers that die', () => {
  it('B8 the five claims of a killed consumer are all visible again soon after their lease', async () => {
    const leaseMs = 200
    const { queue, backend } = memoryQueue<number>({ leaseMs })
    await queue.enqueueAll([0, 1, 2, 3, 4].map((payload) => ({ payload })))
    const dying = doomed(queue, backend, { leaseMs })
    let held = 0
    dying.queue.source({ credit: 5 }).subscribe({
      next: () => {
        held += 1
      },
      error: () => {},
    })
    await until('it holds all five', () => held === 5)
    dying.kill()
    const killedAt = performance.now()
    const seen: number[][] = []
    for (let count = 0; count < 5; count += 1) {
      const delivery = await queue.receive({ timeoutMs: 4_000 })
      if (delivery) seen.push([delivery.payload, delivery.attempt, delivery.deliveryCount])
    }
    expect(performance.now() - killedAt).toBeLessThan(leaseMs + 1_000)
    expect(seen).toEqual([0, 1, 2, 3, 4].map((payload) => [payload, 2, 2]))
  })

  it('B14 a message that kills every process that handles it is a dead letter in the end', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 50, maxDeliveries: 3 })
    await queue.enqueueAll([{ payload: 'killer', id: 'killer' }, { payload: 'harmless' }])
    for (let crash = 1; crash <= 3; crash += 1) {
      const dying = doomed(queue, backend, { leaseMs: 50 })
      expect(await dying.queue.receive()).toMatchObject({ payload: 'killer', attempt: crash })
      dying.kill()
      await until('the claim is gone', async () => (await queue.stats()).claimed === 0)
    }
    expect(await queue.tryTake()).toBe('harmless')
    await expectStats(queue, { dead: 1, ready: 0, ackedTotal: 1 })
    for await (const letter of queue.deadLetters) expect(letter).toMatchObject({ id: 'killer', attempts: 3 })
    expect(await queue.outcome('killer')).toMatchObject({ state: 'dead' })
  })

  it('H12 a consumer that is full of claims it has lost has its credit back, and goes on', () => {
    const seen: string[] = []
    let left: unknown
    marbles((helpers) => {
      const queue = helpers.testQueue('(abcdef)', undefined, { leaseMs: 1_000 })
      const lost = queue.backend.inject({ verb: 'renew', kind: 'drop-request', times: Number.POSITIVE_INFINITY })
      queue.source({ credit: 3 }).subscribe((delivery) => {
        seen.push(`${delivery.id}${delivery.attempt}`)
        if (delivery.attempt > 1 || seen.length > 3) void delivery.ack()
      })
      at(helpers, 5_000, () => lost.remove())
      at(helpers, 50_000, () => {
        const { ready, claimed, ackedTotal } = queue.inspect().stats
        left = { ready, claimed, ackedTotal }
      })
    })
    expect(seen.slice(0, 3)).toEqual(['a1', 'b1', 'c1'])
    expect(seen.slice(3).toSorted()).toEqual(['a2', 'b2', 'c2', 'd1', 'e1', 'f1'])
    expect(left).toEqual({ ready: 0, claimed: 0, ackedTotal: 6 })
  })
})
