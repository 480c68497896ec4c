/** Servers that fail over, freeze, and come back, by Sentinel and in a cluster, while queues are at work. */
import { Cluster } from 'ioredis'
import { type Delivery, mergeMap, pipe, type Queue, run, SettlementUnknownError } from 'millrace'
import { afterAll, describe, expect, it } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import { eventsOf } from '../../support/events.js'
import { expectStats } from '../../support/queues.js'
import { Effects } from '../../support/rig.js'
import { type RedisCluster, startCluster } from '../../support/servers/redis-cluster.js'
import { type RedisSentinel, startSentinel } from '../../support/servers/redis-sentinel.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { type Relay, startRelay } from '../../support/servers/relay.js'
import { connects } from '../../support/traffic.js'
import { pause, until } from '../../support/wait.js'
import { Rig } from './rig.js'

/** Enqueues one after the other until it is told to end; what was confirmed, and how each was. */
function producing(queue: Queue<string>, prefix: string): { readonly confirmed: string[]; end(): Promise<void> } {
  const confirmed: string[] = []
  let isOver = false
  const work = (async () => {
    for (let number = 0; !isOver; number += 1) {
      const id = `${prefix}${number}`
      const { status } = await queue.enqueue(id, { id })
      expect([id, status]).toEqual([id, 'enqueued'])
      confirmed.push(id)
      await pause(5)
    }
  })()
  const end = async () => {
    isOver = true
    await work
  }
  return { confirmed, end }
}

/** Handles until it is stopped; what was confirmed as acked, what nobody could tell in time, and how often each was handled. */
function consuming(queue: Queue<string>) {
  const effects = new Effects()
  const acked = new Set<string>()
  const unknown = new Set<string>()
  const source = queue.source()
  const events = eventsOf(source)
  const work = async (delivery: Delivery<string>) => {
    effects.note(delivery.id)
    try {
      if ((await delivery.ack()) === 'settled') acked.add(delivery.id)
    } catch (error) {
      if (error instanceof SettlementUnknownError) unknown.add(delivery.id)
      throw error
    }
  }
  const running = run(pipe(source, mergeMap(work, 4)))
  running.catch(() => {})
  return { effects, acked, unknown, events, stop: async () => [await source.stop(), await running] }
}

/**
 * All is handled, and once: but for acks that took longer than their bound of 5 s, since the failover did. Of these it was
 * told that they are unknown, and they may come again when their lease is over.
 */
async function expectOnce(consumer: ReturnType<typeof consuming>, confirmed: readonly string[]): Promise<void> {
  const { acked, unknown, effects } = consumer
  await until('all is handled', () => confirmed.every((id) => acked.has(id) || unknown.has(id)), 10_000)
  expect(effects.doubled.filter((id) => !unknown.has(id))).toEqual([])
}

describe('by Sentinel', async () => {
  const sentinel: RedisSentinel = await startSentinel()
  afterAll(() => sentinel.stop())

  it('R7 a failover: sources that wait and that work go on, and with `replicas` nothing confirmed is lost', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const backend = rig.backend(sentinel.options, { replicas: 1 })
    const [working, waiting] = [rig.queue(backend), rig.queue(backend)]
    const consumer = consuming(working)
    const waiter = consuming(waiting)
    await waiting.stats()
    const producers = ['a', 'b'].map((prefix) => producing(working, prefix))
    await until('it is at work', () => consumer.acked.size > 50, 10_000)
    await sentinel.failover()
    // Nobody replicates to it by now: nothing is confirmed before somebody does.
    await sentinel.rejoin()
    const before = consumer.acked.size
    await until('it is at work again', () => consumer.acked.size > before + 50, 20_000)
    await Promise.all(producers.map((producer) => producer.end()))
    expect(await waiting.enqueue('late', { id: 'late' })).toEqual({ id: 'late', status: 'enqueued' })
    await until('who waited has it', () => waiter.acked.size === 1, 5_000)
    const confirmed = producers.flatMap((producer) => producer.confirmed)
    // With nothing confirmed lost, nothing that was acked has come back.
    await expectOnce(consumer, confirmed)
    await Promise.all([consumer.stop(), waiter.stop()])
    // Once for the master, and perhaps once more for the replica, without which nothing is confirmed.
    for (const { events } of [consumer, waiter]) {
      expect(connects(events).join(' ')).toMatch(/^reconnecting reconnected( reconnecting reconnected)?$/)
    }
    const { length } = confirmed
    if (consumer.unknown.size === 0) await expectStats(working, { ackedTotal: length, ready: 0, claimed: 0 })
    await expectStats(working, { enqueuedTotal: length, dead: 0 })
  })

  it('R7 without `replicas` a failover may lose or repeat, but damages nothing, and all goes on', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const queue = rig.queue(rig.backend(sentinel.options))
    const consumer = consuming(queue)
    const producer = producing(queue, 'c')
    await until('it is at work', () => consumer.acked.size > 50, 10_000)
    await sentinel.failover()
    const before = consumer.acked.size
    await until('it is at work again', () => consumer.acked.size > before + 50, 20_000)
    await producer.end()
    await until('nothing is left', async () => (await queue.stats()).ready === 0)
    await consumer.stop()
    const stats = await queue.stats()
    expect([stats.ready, stats.claimed, conserved(stats)]).toEqual([0, 0, true])
    expect(connects(consumer.events)).toEqual(['reconnecting', 'reconnected'])
    await sentinel.rejoin()
  })

  it('N78, A14 a master that is frozen until another is promoted is left for that one, also by who was in mid-work', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const queue = rig.queue(rig.backend(sentinel.options, { replicas: 1 }))
    const consumer = consuming(queue)
    const producer = producing(queue, 'f')
    await until('it is at work', () => consumer.acked.size > 30, 10_000)
    const frozen = sentinel.master
    frozen.freeze()
    await sentinel.promoted()
    frozen.thaw()
    // It takes itself for the master until it is told; what it is asked for then is not confirmed by a replica.
    await sentinel.rejoined()
    const before = consumer.acked.size
    await until('it is at work again', () => consumer.acked.size > before + 30, 20_000)
    await producer.end()
    await expectOnce(consumer, producer.confirmed)
    await consumer.stop()
    const stats = await queue.stats()
    expect([stats.ready, conserved(stats)]).toEqual([0, true])
    expect(stats.claimed).toBeLessThanOrEqual(consumer.unknown.size)
  })
})

describe('a master and a replica that nobody watches', async () => {
  const master = await startRedis({ args: ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '3600'] })
  const replica = await startRedis({ args: ['--replicaof', `127.0.0.1 ${master.port}`] })
  afterAll(() => Promise.all([master.stop(), replica.stop()]))

  it('R7, R2 `replicas` also holds for a call that the server did not know by its hash', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const queue = rig.queue(rig.backend(master.url, { replicas: 1 }))
    await queue.enqueue('before')
    await master.command('SCRIPT', 'FLUSH')
    // It says so once a second.
    await until('the replica has said that it has it all', async () => {
      const info = String(await master.command('INFO', 'replication'))
      return info.includes(`offset=${/master_repl_offset:(\d+)/.exec(info)?.[1]},`)
    })
    replica.freeze()
    onTestFinished(() => replica.thaw())
    // A WAIT that went out before the EVAL that makes the change would say nothing of it.
    const enqueued = queue.enqueue('after').then(() => 'confirmed')
    expect(await Promise.race([enqueued, pause(2_500).then(() => 'not confirmed')])).toBe('not confirmed')
    replica.thaw()
    expect(await enqueued).toBe('confirmed')
  })

  it('R7, N28 what no replica has is confirmed when one has it, and stored once', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const queue = rig.queue(rig.backend(master.url, { replicas: 1 }))
    await queue.stats()
    replica.freeze()
    onTestFinished(() => replica.thaw())
    const enqueued = queue.enqueue('a', { id: 'a' })
    expect(await Promise.race([enqueued, pause(2_500).then(() => 'not confirmed')])).toBe('not confirmed')
    // The call is repeated on a connection that has changed nothing.
    await master.command('CLIENT', 'KILL', 'TYPE', 'normal')
    expect(await Promise.race([enqueued, pause(1_500).then(() => 'not confirmed')])).toBe('not confirmed')
    replica.thaw()
    expect(await enqueued).toEqual({ id: 'a', status: 'enqueued' })
    await expectStats(queue, { ready: 1, enqueuedTotal: 1 })
  })
})

describe('by two sentinels, of which the first is silent', async () => {
  const sentinel = await startSentinel({ sentinels: 2 })
  afterAll(() => sentinel.stop())

  it('A10, B22 the other one is asked, and closing meanwhile leaves nothing open', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const before = process.getActiveResourcesInfo().length
    sentinel.sentinels[0]?.freeze()
    onTestFinished(() => sentinel.sentinels[0]?.thaw())
    const queue = rig.queue(rig.backend(sentinel.options))
    expect(await queue.enqueue('a', { id: 'a' }).catch(({ name }: Error) => name)).toMatchObject({ id: 'a' })
    expect((await queue.receive({ timeoutMs: 5_000 }))?.id).toBe('a')
    await queue.close({ graceMs: 0 })
    const leaving = rig.queue(rig.backend(sentinel.options))
    const answer = leaving.enqueue('b').catch(({ name }: Error) => name)
    await until('it has begun to connect', () => process.getActiveResourcesInfo().length > before)
    await leaving.close({ graceMs: 0 })
    expect(await answer).toBe('ClosedError')
    await until('nothing is open', () => process.getActiveResourcesInfo().length <= before, 8_000)
  })
})

/** A cluster whose nodes are reached through relays. */
async function relayed(cluster: RedisCluster) {
  const relays = await Promise.all(cluster.servers.map(({ port }) => startRelay(port)))
  const natMap = Object.fromEntries(
    cluster.servers.map(({ port }, index) => [
      `127.0.0.1:${port}`,
      { host: '127.0.0.1', port: (relays[index] as Relay).port },
    ]),
  )
  const nodes = relays.map(({ port }) => ({ host: '127.0.0.1', port }))
  const relayOf = async (key: string) => relays[cluster.servers.indexOf(await cluster.nodeOf(key))] as Relay
  return { nodes, natMap, relayOf, stop: () => Promise.all(relays.map((relay) => relay.stop())) }
}

describe('in a cluster', async () => {
  const cluster = await startCluster({ appendOnly: true, fullCoverage: false })
  afterAll(() => cluster.stop())

  async function queuesOnAllNodes(rig: Rig, backend: ReturnType<Rig['backend']>): Promise<Queue<string>[]> {
    const found = new Map<unknown, string>()
    for (let number = 0; found.size < cluster.servers.length; number += 1) {
      const name = `cluster-${number}-${Math.random()}`
      found.set(await cluster.nodeOf(`{${name}}`), name)
    }
    return cluster.servers.map((server) => rig.queue<string>(backend, {}, found.get(server) as string))
  }

  it('A14, N79 one node is killed and comes back: its queue goes on, those of the others never stop', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const client = new Cluster([...cluster.nodes], { lazyConnect: true })
    const queues = await queuesOnAllNodes(rig, rig.backend(client))
    const consumers = queues.map(consuming)
    const producers = queues.map((queue, index) => producing(queue, `${index}-`))
    await until('all are at work', () => consumers.every(({ acked }) => acked.size > 20), 10_000)
    const [victim] = cluster.servers
    await victim?.kill()
    const sizes = consumers.map(({ acked }) => acked.size)
    const goOn = () => consumers.slice(1).every(({ acked }, index) => acked.size > (sizes[index + 1] ?? 0) + 30)
    await until('the others go on meanwhile', goOn, 8_000)
    await victim?.restart()
    await cluster.ready()
    const before = consumers[0]?.acked.size ?? 0
    await until('its queue goes on', () => (consumers[0]?.acked.size ?? 0) > before + 20, 15_000)
    await Promise.all(producers.map((producer) => producer.end()))
    for (const [index, { confirmed }] of producers.entries()) {
      const { acked, effects, stop } = consumers[index] as ReturnType<typeof consuming>
      await until('all is handled', () => confirmed.every((id) => acked.has(id)), 10_000)
      await stop()
      expect([index, effects.doubled]).toEqual([index, []])
      const { length } = confirmed
      await expectStats(queues[index] as Queue<string>, { ackedTotal: length, enqueuedTotal: length, claimed: 0 })
    }
  })

  it('A10, B22 the connection to one node is half open: it is found, however busy those to the others are', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const network = await rig.use(relayed(cluster))
    const client = new Cluster(network.nodes, { natMap: network.natMap, lazyConnect: true })
    const [quiet, busy] = (await queuesOnAllNodes(rig, rig.backend(client))) as [Queue<string>, Queue<string>]
    const relay = await network.relayOf(`{${quiet.name}}`)
    const consumer = consuming(busy)
    const producer = producing(busy, 'busy')
    await quiet.enqueue('a', { id: 'a' })
    const delivery = await quiet.receive()
    await until('the other is at work', () => consumer.acked.size > 20, 10_000)
    relay.deafen()
    const settled = delivery?.ack().catch((error: Error) => error.name)
    expect(await Promise.race([settled, pause(8_000).then(() => 'no answer')])).toBe('settled')
    await producer.end()
    await consumer.stop()
    expect(consumer.effects.doubled).toEqual([])
  })
})
