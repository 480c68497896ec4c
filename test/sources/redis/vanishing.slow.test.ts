import { describe, expect, it, onTestFinished } from 'vitest'
import type { QueueStats } from '../../../src/driver.js'
import { pause } from '../../support/wait.js'
import { backendOn, freshServer, inspect, queueOn } from './harness.js'

function sane(stats: QueueStats): void {
  for (const [name, value] of Object.entries(stats)) expect([name, Number(value) >= 0]).toEqual([name, true])
}

describe('each key in turn', () => {
  it.each(['q', 'm', 'p', 'r', 'o', 'd', 'c', 't', 'x', 'e'])(
    'G10 %s may vanish while consumers work: the queue goes on',
    async (suffix) => {
      const server = await freshServer()
      const redis = inspect(server)
      const producer = queueOn<string>(backendOn(server.url), { ageing: { stepMs: 1_000 } }, 'q')
      const consumer = queueOn<string>(backendOn(server.url), { leaseMs: 400, ageing: { stepMs: 1_000 } }, 'q')
      const seen = new Set<string>()
      const failures: unknown[] = []
      const source = consumer.source({ credit: 5 })
      const handle = async (payload: string) => {
        seen.add(payload)
        if (payload.startsWith('bad')) throw new Error('bad')
      }
      const subscription = source.subscribe({
        next: (delivery) => {
          handle(delivery.payload).then(
            () => delivery.ack(),
            () => delivery.deadLetter('bad'),
          )
        },
        error: (error) => void failures.push(error),
      })
      onTestFinished(() => subscription.unsubscribe())
      const fill = (round: number) =>
        producer.enqueueAll([
          ...Array.from({ length: 30 }, (_, index) => ({ payload: `${round}-${index}`, priority: index % 3 })),
          { payload: `late-${round}`, delayMs: 20, ttlMs: 60_000 },
          { payload: `bad-${round}` },
        ])
      for (let round = 0; round < 4; round += 1) {
        await fill(round)
        await redis.unlink(`millrace:{q}:${suffix}`)
        sane(await producer.stats())
      }
      await fill(99)
      const last = Array.from({ length: 30 }, (_, index) => `99-${index}`)
      await expect.poll(() => last.filter((each) => !seen.has(each)), { timeout: 4_000 }).toEqual([])
      expect(failures).toEqual([])
      sane(await producer.stats())
      // Nobody spins over what is gone: an idle second costs few calls.
      const callsOf = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1])
      await expect.poll(async () => (await producer.stats()).ready, { timeout: 3_000 }).toBe(0)
      const before = await callsOf()
      await pause(500)
      expect((await callsOf()) - before).toBeLessThan(40)
    },
  )
})
