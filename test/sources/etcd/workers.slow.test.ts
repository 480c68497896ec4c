/** Workers in processes of their own, some of which die. */
import type { Queue } from 'millrace'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import { expectStats } from '../../support/queues.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { pause, until } from '../../support/wait.js'
import type { Told } from '../../support/worker.js'
import type { Blocked } from './children/block.js'
import { Rig } from './rig.js'

const LEASE_MS = 2_000
const MAX_DELIVERIES = 2

const program = await bundled(new URL('children/worker.ts', import.meta.url))
let server: EtcdServer
let queue: Queue<string>
let names = 0

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(async () => {
  await server.stop()
})

beforeEach(() => {
  names += 1
  const rig = new Rig(onTestFinished)
  const options = { leaseMs: LEASE_MS, maxDeliveries: MAX_DELIVERIES }
  queue = rig.queue(rig.backend(server.url), options, `shared-${names}`)
})

function started<Said>(what: string): Child<Said> {
  return new Child<Said>(program, [server.url, queue.name, what, String(LEASE_MS), String(MAX_DELIVERIES)])
}

async function worker(what: 'handle' | 'hold' | 'exit'): Promise<Child<Told>> {
  const child = started<Told>(what)
  await child.hear(({ ready }) => ready === true)
  return child
}

async function enqueue(count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, index) => `m${index}`)
  for (let from = 0; from < count; from += 100) {
    await queue.enqueueAll(ids.slice(from, from + 100).map((id) => ({ payload: 'x', id })))
  }
  return ids
}

const begun = (children: readonly Child<Told>[]) => children.flatMap(({ said }) => said.flatMap(({ id }) => id ?? []))

describe('workers in processes of their own', () => {
  it('N3, N66, N88 three of them handle each message once while they are replaced by SIGTERM, and leave nothing behind when told to stop', async () => {
    const all: Child<Told>[] = []
    const fresh = async () => {
      const child = await worker('handle')
      all.push(child)
      return child
    }
    const stopped = async (child: Child<Told>, stop: () => void) => {
      stop()
      expect((await child.hear(({ released }) => released !== undefined)).released).toMatchObject({ abandoned: 0 })
      await child.end()
    }
    const [first, second, third] = (await Promise.all([fresh(), fresh(), fresh()])) as [
      Child<Told>,
      Child<Told>,
      Child<Told>,
    ]
    const ids = await enqueue(100)
    let replaced = false
    const producing = (async () => {
      for (; !replaced; ids.push(`m${ids.length}`)) {
        await queue.enqueue('x', { id: `m${ids.length}` })
        await pause(20)
      }
    })()
    const current = [third]
    for (const old of [first, second]) {
      current.push(await fresh())
      await stopped(old, () => old.process.kill('SIGTERM'))
    }
    replaced = true
    await producing
    await until('all are handled', async () => (await queue.stats()).ackedTotal === ids.length, 20_000)
    for (const child of current) await stopped(child, () => child.tell('stop'))
    expect(begun(all).sort()).toEqual(ids.sort())
    await expectStats(queue, { ackedTotal: ids.length, claimed: 0, ready: 0, dead: 0 })
    expect(await server.gateway.leases()).toEqual([])
  })

  it('B8, N25, E23 the five claims of one that is killed come back within its lease and a second', async () => {
    const holder = await worker('hold')
    await enqueue(5)
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
    await queue.enqueue('poison', { id: 'poison' })
    const attempts: (number | undefined)[] = []
    for (let died = 0; died < MAX_DELIVERIES; died += 1) {
      const child = await worker('exit')
      attempts.push((await child.hear(({ id }) => id === 'poison')).attempt)
      await expect(child.end()).rejects.toThrow('ended with 1')
    }
    expect(attempts).toEqual([1, 2])
    const consumer = queue.receive({ timeoutMs: 8_000 })
    await until('it is dead', async () => (await queue.stats()).dead === 1, 6_000)
    const letters: unknown[] = []
    for await (const { id, attempts: made } of queue.deadLetters) letters.push([id, made])
    expect(letters).toEqual([['poison', 2]])
    await queue.enqueue('fine')
    expect((await consumer)?.payload).toBe('fine')
  })

  it('N83, B2 one that ran for two leases without a turn learns it at once, and its ack changes nothing', async () => {
    await queue.enqueue('a', { id: 'a' })
    const child = started<Blocked>('block')
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
    const all = await Promise.all([1, 2, 3].map(() => worker('handle')))
    const enqueuing = enqueue(600)
    const killed = all.slice(1)
    for (const child of killed) {
      await child.hear(({ id }) => id !== undefined)
      await child.kill()
    }
    expect((await queue.stats()).ackedTotal).toBeLessThan(600)
    const ids = await enqueuing
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
    expect(begun(all).length - 600).toBeLessThanOrEqual(5 * killed.length)
    await expectStats(queue, { ackedTotal: 600, claimed: 0, ready: 0, dead: 0, enqueuedTotal: 600 })
  })
})
