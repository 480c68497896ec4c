/** Workers in processes of their own, some of which die. */
import { Queue } from 'millrace'
import { redisBackend } from 'millrace/redis'
import { describe, expect, it, onTestFinished } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import { expectStats } from '../../support/queues.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { until } from '../../support/wait.js'
import type { Told } from '../../support/worker.js'

const LEASE_MS = 600
const program = await bundled(new URL('children/worker.ts', import.meta.url))

async function shared(): Promise<{ url: string; queue: Queue<string> }> {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  const queue = new Queue<string>('shared', { backend: redisBackend(server.url), leaseMs: LEASE_MS, maxDeliveries: 3 })
  onTestFinished(async () => {
    await queue.close({ graceMs: 0 })
  })
  return { url: server.url, queue }
}

async function worker(url: string, what: 'handle' | 'hold' | 'exit'): Promise<Child<Told>> {
  const child = new Child<Told>(program, [url, what])
  await child.hear(({ ready }) => ready === true)
  return child
}

function begun(children: readonly Child<Told>[]): string[] {
  return children.flatMap(({ said }) => said.flatMap(({ id }) => id ?? []))
}

describe('workers in processes of their own', () => {
  it('N3 four of them handle each of 1 000 messages once, and leave nothing behind when told to stop', async () => {
    const { url, queue } = await shared()
    const workers = await Promise.all([1, 2, 3, 4].map(() => worker(url, 'handle')))
    const entries = Array.from({ length: 1_000 }, (_, index) => ({ payload: 'x', id: `m${index}` }))
    for (let from = 0; from < entries.length; from += 100) await queue.enqueueAll(entries.slice(from, from + 100))
    await until('all are handled', async () => (await queue.stats()).ackedTotal === 1_000, 30_000)
    for (const child of workers) {
      child.tell('stop')
      expect((await child.hear(({ released }) => released !== undefined)).released).toMatchObject({ abandoned: 0 })
      await child.end()
    }
    expect(begun(workers).sort()).toEqual(entries.map(({ id }) => id).sort())
    await expectStats(queue, { ackedTotal: 1_000, claimed: 0, ready: 0, dead: 0 })
  })

  it('B8, N25 the five claims of one that is killed come back soon after the lease has ended', async () => {
    const { url, queue } = await shared()
    const holder = await worker(url, 'hold')
    await queue.enqueueAll(Array.from({ length: 5 }, (_, index) => ({ payload: 'x', id: `m${index}` })))
    await until('it holds all', () => begun([holder]).length === 5)
    const killedAt = performance.now()
    await holder.kill()
    const back = await Promise.all([1, 2, 3, 4, 5].map(() => queue.receive({ timeoutMs: LEASE_MS + 5_000 })))
    expect(performance.now() - killedAt).toBeLessThan(LEASE_MS + 2_000)
    expect(back.map((delivery) => [delivery?.id, delivery?.attempt]).sort()).toEqual(
      [0, 1, 2, 3, 4].map((index) => [`m${index}`, 2]),
    )
    for (const delivery of back) expect(await delivery?.ack()).toBe('settled')
  })

  it('B14 a message that kills each process that handles it is a dead letter after the last attempt', async () => {
    const { url, queue } = await shared()
    await queue.enqueue('poison', { id: 'poison' })
    const attempts: (number | undefined)[] = []
    for (let died = 0; died < 3; died += 1) {
      const child = await worker(url, 'exit')
      attempts.push((await child.hear(({ id }) => id === 'poison')).attempt)
      await expect(child.end()).rejects.toThrow('ended with 1')
    }
    expect(attempts).toEqual([1, 2, 3])
    const consumer = queue.receive({ timeoutMs: 5_000 })
    await until('it is dead', async () => (await queue.stats()).dead === 1, 5_000)
    const letters: unknown[] = []
    for await (const { id, attempts: made } of queue.deadLetters) letters.push([id, made])
    expect(letters).toEqual([['poison', 3]])
    await queue.enqueue('fine')
    expect((await consumer)?.payload).toBe('fine')
  })
})
