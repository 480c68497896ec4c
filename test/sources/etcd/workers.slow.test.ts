/** Workers in processes of their own, some of which die. */
import { fileURLToPath } from 'node:url'
import type { Queue } from 'millrace'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Child } from '../../support/child.js'
import { expectStats } from '../../support/queues.js'
import { deferTo } from '../../support/rig.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { until } from '../../support/wait.js'
import type { Told } from '../../support/worker.js'
import type { Blocked } from './children/block.js'
import { Rig } from './rig.js'

const LEASE_MS = 2_000
const program = fileURLToPath(new URL('children/worker.ts', import.meta.url))

async function shared(): Promise<{ server: EtcdServer; queue: Queue<string> }> {
  const rig = new Rig(deferTo(onTestFinished))
  const server = await rig.use(startEtcd())
  return { server, queue: rig.queue(rig.backend(server.url), { leaseMs: LEASE_MS, maxDeliveries: 3 }, 'shared') }
}

function started<Said>({ url }: EtcdServer, what: string): Child<Said> {
  return new Child<Said>(program, [url, what, String(LEASE_MS)], [process.execPath, '--import', 'tsx'])
}

async function worker(server: EtcdServer, what: 'handle' | 'hold' | 'exit'): Promise<Child<Told>> {
  const child = started<Told>(server, what)
  await child.hear(({ ready }) => ready === true)
  return child
}

async function enqueue(queue: Queue<string>, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, index) => `m${index}`)
  for (let from = 0; from < count; from += 100) {
    await queue.enqueueAll(ids.slice(from, from + 100).map((id) => ({ payload: 'x', id })))
  }
  return ids
}

const begun = (children: readonly Child<Told>[]) => children.flatMap(({ said }) => said.flatMap(({ id }) => id ?? []))

describe('workers in processes of their own', () => {
  it('N3 three of them handle each of 600 messages once, and leave nothing behind when told to stop', async () => {
    const { server, queue } = await shared()
    const workers = await Promise.all([1, 2, 3].map(() => worker(server, 'handle')))
    const ids = await enqueue(queue, 600)
    await until('all are handled', async () => (await queue.stats()).ackedTotal === 600, 30_000)
    for (const child of workers) {
      child.tell('stop')
      expect((await child.hear(({ released }) => released !== undefined)).released).toMatchObject({ abandoned: 0 })
      await child.end()
    }
    expect(begun(workers).sort()).toEqual(ids.sort())
    await expectStats(queue, { ackedTotal: 600, claimed: 0, ready: 0, dead: 0 })
    expect(await server.gateway.leases()).toEqual([])
  })

  it('B8, N25, E23 the five claims of one that is killed come back within its lease and a second', async () => {
    const { server, queue } = await shared()
    const holder = await worker(server, 'hold')
    await enqueue(queue, 5)
    await until('it holds all', () => begun([holder]).length === 5)
    const back = [1, 2, 3, 4, 5].map(() => queue.receive({ timeoutMs: LEASE_MS + 5_000 }))
    await queue.size()
    const killedAt = performance.now()
    await holder.kill()
    const deliveries = await Promise.all(back)
    expect(performance.now() - killedAt).toBeLessThan(LEASE_MS + 1_000)
    expect(deliveries.map((delivery) => [delivery?.id, delivery?.attempt]).sort()).toEqual(
      [0, 1, 2, 3, 4].map((index) => [`m${index}`, 2]),
    )
    for (const delivery of deliveries) expect(await delivery?.ack()).toBe('settled')
  })

  it('B14 a message that kills each process that handles it is a dead letter after the last attempt', async () => {
    const { server, queue } = await shared()
    await queue.enqueue('poison', { id: 'poison' })
    const attempts: (number | undefined)[] = []
    for (let died = 0; died < 3; died += 1) {
      const child = await worker(server, 'exit')
      attempts.push((await child.hear(({ id }) => id === 'poison')).attempt)
      await expect(child.end()).rejects.toThrow('ended with 1')
    }
    expect(attempts).toEqual([1, 2, 3])
    const consumer = queue.receive({ timeoutMs: 8_000 })
    await until('it is dead', async () => (await queue.stats()).dead === 1, 6_000)
    const letters: unknown[] = []
    for await (const { id, attempts: made } of queue.deadLetters) letters.push([id, made])
    expect(letters).toEqual([['poison', 3]])
    await queue.enqueue('fine')
    expect((await consumer)?.payload).toBe('fine')
  })

  it('N83, B2 one that ran for two leases without a turn learns it at once, and its ack changes nothing', async () => {
    const { server, queue } = await shared()
    await queue.enqueue('a', { id: 'a' })
    const child = started<Blocked>(server, 'block')
    await child.hear(({ held }) => held === 'a')
    const again = await queue.receive({ timeoutMs: LEASE_MS + 4_000 })
    expect(again).toMatchObject({ id: 'a', attempt: 2 })
    expect(await child.hear(({ aborted }) => aborted !== undefined)).toEqual({ aborted: true, why: 'expired' })
    expect(await child.hear(({ settlement }) => settlement !== undefined)).toEqual({ settlement: 'stale' })
    expect(await again?.ack()).toBe('settled')
    await child.end()
    await expectStats(queue, { ackedTotal: 1, ready: 0, claimed: 0 })
  })

  it('N26, B8 are killed again and again in mid-work, and nothing is lost, and hardly a message handled again', async () => {
    const { server, queue } = await shared()
    const ids = await enqueue(queue, 600)
    let killed = 0
    const all: Child<Told>[] = []
    const replaced = async () => {
      const child = await worker(server, 'handle')
      all.push(child)
      return child
    }
    const current = await Promise.all([1, 2].map(replaced))
    while ((await queue.stats()).ackedTotal + (await queue.stats()).dead < 600 && killed < 2) {
      const index = killed % current.length
      const child = current[index] as Child<Told>
      await child.hear(({ id }) => id !== undefined).catch(() => undefined)
      await child.kill()
      killed += 1
      current[index] = await replaced()
    }
    await until(
      'all are handled',
      async () => {
        const { ackedTotal, dead } = await queue.stats()
        return ackedTotal + dead === 600
      },
      30_000,
    )
    expect(new Set(begun(all))).toEqual(new Set(ids))
    // Five handlers of each that was killed may have begun.
    expect(begun(all).length - 600).toBeLessThanOrEqual(5 * killed)
    await expectStats(queue, { ackedTotal: 600, claimed: 0, ready: 0, dead: 0, enqueuedTotal: 600 })
  })

  it('N66, N88 are replaced one by one by SIGTERM while messages come, and each is handled once', async () => {
    const { server, queue } = await shared()
    const all: Child<Told>[] = []
    const fresh = async () => {
      const child = await worker(server, 'handle')
      all.push(child)
      return child
    }
    const current = [await fresh(), await fresh()]
    const producing = (async () => {
      for (let index = 0; index < 300; index += 1) await queue.enqueue('x', { id: `m${index}` })
    })()
    for (let round = 0; round < 2; round += 1) {
      const old = current[round % 2] as Child<Told>
      current[round % 2] = await fresh()
      old.process.kill('SIGTERM')
      expect((await old.hear(({ released }) => released !== undefined)).released).toMatchObject({ abandoned: 0 })
      await old.end()
    }
    await producing
    await until('all are handled', async () => (await queue.stats()).ackedTotal === 300, 20_000)
    const seen = begun(all)
    expect([seen.length, new Set(seen).size]).toEqual([300, 300])
  })
})
