import { Cluster } from 'ioredis'
import { deadLetter, mergeMap, pipe, Queue, run, UnsupportedError } from 'millrace'
import { redisBackend } from 'millrace/redis'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import { eventsOf } from '../../support/events.js'
import { startCluster } from '../../support/servers/redis-cluster.js'
import type { RedisServer } from '../../support/servers/redis-server.js'
import { pause, until } from '../../support/wait.js'
import { backendOn, Client, failureOf, inspect, queueOn } from './harness.js'
import { tour, VERBS } from './tour.js'

const cluster = await startCluster()
const client = new Cluster([...cluster.nodes])
afterAll(async () => {
  client.disconnect()
  await cluster.stop()
})

/** Names of queues in slots of each of the three nodes. */
const NAMES = ['q1', 'q2', 'q3', 'q4', 'q5', 'q6', 'q7', 'q8']

describe('a cluster', () => {
  it('R3 G14 takes every verb, with queues on all nodes at once', async () => {
    const backend = backendOn(client)
    const nodes = await Promise.all(NAMES.map((name) => cluster.nodeOf(`millrace:{${name}}:q`)))
    expect(new Set(nodes).size).toBe(3)
    await Promise.all(
      NAMES.map(async (name) => {
        const queue = new Client(backend, name)
        for (const verb of Object.values(VERBS)) await verb(queue, queue.token())
        await queue.driver.resume()
        await queue.enqueue('a', 'b')
        expect(await queue.drain()).toEqual(['a', 'b'])
        expect(conserved(await queue.stats())).toBe(true)
      }),
    )
  })

  it('R3 G14 takes a tour through all states where a hash tag keeps the queues together', async () => {
    const backend = backendOn(client, { hashTag: 'tour' })
    await tour(new Client(backend, 'one'), new Client(backend, 'two'))
  })

  it('R3 wakes consumers of queues on all nodes by hints', async () => {
    const [consumers, producers] = [backendOn(client), backendOn(client)]
    const waits = NAMES.map(async (name) => {
      const delivery = await queueOn(consumers, {}, `wake-${name}`).receive({ timeoutMs: 8_000 })
      return [name, delivery?.payload, performance.now()] as const
    })
    await until('all are subscribed', async () => {
      const lists = await Promise.all(cluster.servers.map((server) => server.command('PUBSUB', 'CHANNELS', '*wake*')))
      return (lists.flat() as unknown[]).length === NAMES.length
    })
    const askedAt = performance.now()
    await Promise.all(NAMES.map((name) => queueOn(producers, {}, `wake-${name}`).enqueue(name)))
    for (const [name, payload, at] of await Promise.all(waits)) {
      expect(payload).toBe(name)
      expect(at - askedAt).toBeLessThan(1_500)
    }
  })
})

describe('a message for a queue in another slot', () => {
  it('R3 is refused by forward, typed, and the claim stays live', async () => {
    const backend = backendOn(client)
    const [from, to] = [queueOn(backend, {}, 'f1'), queueOn(backend, {}, 'f2')]
    await from.enqueue('a')
    const delivery = await from.receive({ timeoutMs: 4_000 })
    if (delivery === undefined) throw new Error('one was ready')
    const error = await failureOf(() => delivery.forward(to, 'b'))
    expect(error).toBeInstanceOf(UnsupportedError)
    expect(error).toMatchObject({ code: 'ERR_MILLRACE_UNSUPPORTED', backend: 'redis', feature: 'forward' })
    expect(error.message).toMatch(/"f1" and "f2".*hashTag/)
    expect(await from.stats()).toMatchObject({ claimed: 1, forwardedTotal: 0 })
    expect(await delivery.ack()).toBe('settled')
    expect((await to.stats()).enqueuedTotal).toBe(0)
  })

  it('R3 is told of by a pipeline that would bury there, and is not lost', async () => {
    const backend = backendOn(client)
    const [from, to] = [queueOn(backend, { leaseMs: 500 }, 'd1'), queueOn(backend, {}, 'd2')]
    await from.enqueue('a')
    const controller = new AbortController()
    const source = from.source({ signal: controller.signal })
    const events = eventsOf(source)
    const fail = async () => {
      throw new Error('bad')
    }
    const done = run(pipe(source, deadLetter({ to }), mergeMap(fail, 1))).catch(() => undefined)
    const told = () => events.flatMap((event) => ('error' in event ? [event.error] : []))
    await until('it is told of', () => told().some((error) => error instanceof UnsupportedError))
    controller.abort()
    await done
    const stats = await from.stats()
    expect(conserved(stats)).toBe(true)
    expect(stats.ready + stats.claimed + stats.dead + stats.delayed).toBe(1)
    expect((await to.stats()).enqueuedTotal).toBe(0)
  })

  it.each(['', 'tag'])('R3 goes in one step where the slot is the same: hash tag %j', async (hashTag) => {
    // Without a tag a queue reaches itself.
    const backend = backendOn(client, hashTag === '' ? {} : { hashTag })
    const from = queueOn(backend, {}, 'same')
    const to = hashTag === '' ? from : queueOn(backend, {}, 'other')
    await from.enqueue('a')
    const delivery = await from.receive({ timeoutMs: 4_000 })
    expect(await delivery?.forward(to, 'b')).toBe('settled')
    expect(await from.stats()).toMatchObject({ forwardedTotal: 1, claimed: 0 })
    expect((await to.receive({ timeoutMs: 4_000 }))?.payload).toBe('b')
  })
})

describe('a slot that moves to another node', () => {
  it('R3 loses nothing and doubles nothing while producers and consumers work', async () => {
    const key = 'millrace:{moving}:q'
    const slot = Number(await cluster.servers[0]?.command('CLUSTER', 'KEYSLOT', key))
    const from = await cluster.nodeOf(key)
    const to = cluster.servers.find((server) => server !== from) as RedisServer
    const [fromId, toId] = await Promise.all([from, to].map((each) => each.command('CLUSTER', 'MYID')))
    const backend = redisBackend(client)
    onTestFinished(async () => backend.close())
    const queue = new Queue<string>('moving', { backend, leaseMs: 60_000 })
    const handled: string[] = []
    const errors: unknown[] = []
    const subscription = queue.source({ credit: 5 }).subscribe({
      next: (delivery) => {
        void delivery.ack().then((state) => {
          if (state === 'settled') handled.push(delivery.payload)
        })
      },
      error: (error) => void errors.push(error),
    })
    onTestFinished(() => subscription.unsubscribe())
    const producing = { on: true }
    let produced = 0
    const produce = async () => {
      while (producing.on) {
        await queue.enqueue(`m${produced}`, { id: `m${produced}` })
        produced += 1
      }
    }
    const work = produce()
    await until('work has begun', () => handled.length > 50)
    await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(fromId))
    await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(toId))
    const redis = inspect(from)
    // One key at a time, so that calls find some here and some there.
    for (;;) {
      const [one] = (await redis.cluster('GETKEYSINSLOT', slot, 1)) as string[]
      if (one === undefined) break
      await redis.migrate('127.0.0.1', to.port, one, 0, 5_000)
      await pause(15)
    }
    for (const each of [to, from, ...cluster.servers])
      await each.command('CLUSTER', 'SETSLOT', slot, 'NODE', String(toId))
    const atMove = handled.length
    await until('work goes on behind the move', () => handled.length > atMove + 100, 15_000)
    producing.on = false
    await work
    await until('all is handled', () => handled.length >= produced, 15_000)
    expect(handled.toSorted()).toEqual(Array.from({ length: produced }, (_, index) => `m${index}`).toSorted())
    expect(errors).toEqual([])
    expect(await queue.stats()).toMatchObject({ enqueuedTotal: produced, ackedTotal: produced, ready: 0, claimed: 0 })
    expect(Number(await to.command('EXISTS', key))).toBe(1)
  })
})
