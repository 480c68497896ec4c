/** Three members, of which one dies, freezes, or is cut off from the others, while queues wait and work. */
import { type Delivery, mergeMap, pipe, type Queue, run } from 'millrace'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { expectStats } from '../../support/queues.js'
import { Effects, timed } from '../../support/rig.js'
import { type EtcdCluster, startEtcdCluster } from '../../support/servers/etcd-cluster.js'
import type { EtcdServer } from '../../support/servers/etcd-server.js'
import { connects, followed, nameOf } from '../../support/traffic.js'
import { pause, until } from '../../support/wait.js'
import { IS_WHOLE } from '../../support/whole.js'
import { Rig } from './rig.js'

const SHORT_MS = 3_000
/** Longer than that. */
const LONGER_MS = 4_000
/** Where it need not end meanwhile, a lease is so long that a busy machine does not lose it. */
const LONG_MS = 20_000
/** An election, and the calls that nobody answered until they were given up. */
const HELD_UP_MS = 5_000

/** So seldom that most of the time is that of the cluster, and not of the messages. */
const BETWEEN_MS = 100
const FEWEST = 30

let cluster: EtcdCluster
let rig: Rig

beforeAll(async () => {
  cluster = await startEtcdCluster()
})

afterAll(() => cluster.stop())

beforeEach(() => {
  rig = new Rig(onTestFinished)
})

/** A test that failed leaves it as good as one that did not. */
afterEach(async () => {
  cluster.mend()
  for (const server of cluster.servers) {
    server.thaw()
    if (!server.running) await server.restart()
  }
  await cluster.ready()
})

const leads = async ({ leader }: EtcdCluster, not: EtcdServer) => (await leader()) !== not

/** What is done to a cluster in mid-work; fulfils when it is undone. */
type Trouble = (cluster: EtcdCluster) => Promise<void>

/** What it is, under which lease the work is done, and whether it is left out of a sample. */
const TROUBLES: readonly (readonly [string, number, boolean, Trouble])[] = [
  [
    'E16 the leader is killed, and comes back',
    LONG_MS,
    false,
    async (cluster) => {
      const leader = await cluster.leader()
      await leader.kill()
      await until('there is another', () => leads(cluster, leader))
      await pause(1_000)
      await leader.restart()
    },
  ],
  [
    'E16, A10, N81 the leader freezes for longer than the lease',
    SHORT_MS,
    false,
    async (cluster) => {
      const leader = await cluster.leader()
      leader.freeze()
      await until('there is another', () => leads(cluster, leader))
      await pause(LONGER_MS)
      leader.thaw()
      await cluster.ready()
    },
  ],
  [
    'N80 a follower is cut off for longer than the lease',
    SHORT_MS,
    // Of all of them it does the least.
    true,
    async (cluster) => {
      cluster.cutOff(await cluster.follower())
      await pause(LONGER_MS)
      cluster.mend()
      await cluster.ready()
    },
  ],
  [
    'E16, N81 the leader is cut off for longer than the lease',
    SHORT_MS,
    false,
    async (cluster) => {
      const leader = await cluster.leader()
      cluster.cutOff(leader)
      await until('there is another', () => leads(cluster, leader))
      await pause(LONGER_MS)
      cluster.mend()
      await cluster.ready()
    },
  ],
  [
    'N79 all are restarted, one by one',
    LONG_MS,
    false,
    async (cluster) => {
      for (const server of cluster.servers) {
        await server.restart()
        await cluster.ready()
      }
    },
  ],
]

const CHOSEN = TROUBLES.filter(([, , onlyWhole]) => IS_WHOLE || !onlyWhole)

describe('three members of which, in mid-work,', () => {
  it.for(CHOSEN)('%s: everything is handled once, and no call fails', async ([title, leaseMs, , trouble]) => {
    const queues = [1, 2, 3].map(() => rig.queue<string>(rig.backend(cluster.hosts), { leaseMs }, title))
    const effects = new Effects()
    const cancel = new AbortController()
    const gaps: number[] = []
    let lastAt: number | undefined
    const work = async ({ id }: Delivery<string>) => {
      // Before the first one, clients connect.
      if (lastAt !== undefined) gaps.push(performance.now() - lastAt)
      lastAt = performance.now()
      await pause(10 * Math.random())
      effects.note(id)
    }
    const runs = queues.map((queue) => run(pipe(queue.source(), mergeMap(work, 4)), { signal: cancel.signal }))
    for (const each of runs) each.catch(() => {})
    await queues[0]?.stats()
    let isOver = false
    const troubling = trouble(cluster).finally(() => {
      isOver = true
    })
    let count = 0
    for (; !isOver || count < FEWEST; count += 1) {
      const { status } = await (queues[count % 3] as Queue<string>).enqueue(`m${count}`, { id: `m${count}` })
      expect([count, status]).toEqual([count, 'enqueued'])
      await pause(BETWEEN_MS)
    }
    await troubling
    await until('all are handled', () => effects.size === count, 20_000)
    cancel.abort()
    const summaries = await Promise.all(runs)
    expect(effects.doubled).toEqual([])
    expect(summaries.reduce((sum, { acked }) => sum + acked, 0)).toBe(count)
    await expectStats(queues[0] as Queue<string>, { ackedTotal: count, enqueuedTotal: count, ready: 0, claimed: 0 })
    // There is always a majority, so nobody waits for long.
    expect(Math.max(...gaps)).toBeLessThan(HELD_UP_MS)
  })
})

describe('a client of one member alone', () => {
  it('N81, N80, C1 loses its claims when that member is cut off for longer than the lease, and goes on after', async () => {
    const lonely = await cluster.follower()
    const others = cluster.hosts.filter((host) => host !== lonely.url)
    const queue = rig.queue(rig.backend(lonely.url), { leaseMs: 2_000 })
    const elsewhere = rig.queue(rig.backend(others), { leaseMs: 20_000 }, queue.name)
    await elsewhere.enqueueAll(['a', 'b'].map((id) => ({ payload: id, id })))
    const source = queue.source({ credit: 2 })
    const events = eventsOf(source)
    const deliveries: Delivery<string>[] = []
    source.subscribe({ next: (delivery) => void deliveries.push(delivery), error: () => {} })
    await until('both are held', () => deliveries.length === 2)
    cluster.cutOff(lonely)
    // It is cut off, and so far that is all.
    expect(deliveries.map(({ id, signal }) => [id, signal.aborted])).toEqual([
      ['a', false],
      ['b', false],
    ])
    await until('they are told', () => deliveries.every(({ signal }) => signal.aborted), 4_000)
    expect(deliveries.map(({ signal }) => signal.reason.why)).toEqual(['expired', 'expired'])
    const again = await Promise.all([1, 2].map(() => elsewhere.receive({ timeoutMs: 6_000 })))
    expect(again.map((delivery) => delivery?.attempt)).toEqual([2, 2])
    expect(await Promise.all(again.map((delivery) => delivery?.ack()))).toEqual(['settled', 'settled'])
    await expect(queue.receive({ timeoutMs: 500 })).rejects.toMatchObject({ name: 'BackendUnavailableError' })
    await until('it is told', () => connects(events).includes('reconnecting'), 12_000)
    cluster.mend()
    await cluster.ready()
    expect(await Promise.all(deliveries.map((delivery) => delivery.ack()))).toEqual(['stale', 'stale'])
    await elsewhere.enqueue('c', { id: 'c' })
    await until('it goes on', () => deliveries.length === 3, 10_000)
    expect(deliveries[2]).toMatchObject({ id: 'c', attempt: 1 })
    expect(await deliveries[2]?.ack()).toBe('settled')
    await source.stop()
    await expectStats(elsewhere, { ackedTotal: 3, ready: 0, claimed: 0 })
  })

  it('D1, C5 closes in its bound while that member is cut off, and leaves nothing behind', async () => {
    const lonely = await cluster.follower()
    // A lease that was granted as the leader died, and whose grant nobody heard of, runs out by itself.
    const before = await lonely.gateway.leases()
    const queue = rig.queue(rig.backend(lonely.url), { leaseMs: 2_000 })
    const others = rig.backend(cluster.hosts.filter((host) => host !== lonely.url))
    const elsewhere = rig.queue(others, {}, queue.name)
    await elsewhere.enqueue('a', { id: 'a' })
    expect(await queue.receive()).toMatchObject({ id: 'a' })
    cluster.cutOff(lonely)
    const tookMs = await timed(async () => expect(await queue.close({ graceMs: 300 })).toMatchObject({ abandoned: 1 }))
    expect(tookMs).toBeLessThan(5_300 + 3_500)
    expect(await elsewhere.receive({ timeoutMs: 6_000 })).toMatchObject({ id: 'a', attempt: 2 })
    await elsewhere.close({ graceMs: 0 })
    cluster.mend()
    await cluster.ready()
    const left = async () => (await lonely.gateway.leases()).filter((lease) => !before.includes(lease))
    await until('no lease is left', async () => (await left()).length === 0, 6_000)
  })
})

describe('a cluster without a majority', () => {
  it('N78, A8, E16 is an outage and no emptiness, and all goes on when there is one again', async () => {
    const queue = rig.queue(rig.backend(cluster.hosts), { leaseMs: 20_000 })
    const waiting = followed(queue)
    const other = rig.queue(rig.backend(cluster.hosts))
    await queue.enqueue('a', { id: 'a' })
    await until('it has come', () => waiting.seen.length === 1)
    await other.enqueue('held', { id: 'held' })
    const held = await other.receive()
    const [first, second] = cluster.servers
    await Promise.all([first?.kill(), second?.kill()])
    expect(await queue.receive({ timeoutMs: 800 }).catch(nameOf)).toBe('BackendUnavailableError')
    await expect(queue.size()).rejects.toMatchObject({ name: 'BackendUnavailableError' })
    await until('it is told', () => connects(waiting.events).at(-1) === 'reconnecting', 12_000)
    const enqueued = queue.enqueue('b', { id: 'b' })
    await pause(1_000)
    await Promise.all([first?.restart(), second?.restart()])
    expect(await enqueued).toEqual({ id: 'b', status: 'enqueued' })
    await until('it has come', () => waiting.seen.length === 2, 10_000)
    expect(await held?.ack()).toBe('settled')
    await until('it is told', () => connects(waiting.events).at(-1) === 'reconnected', 10_000)
    expect(waiting.events.filter(({ type }) => type === 'error')).toEqual([])
    await waiting.stop()
    await expectStats(queue, { ackedTotal: 2, ready: 0, claimed: 0 })
  })
})
