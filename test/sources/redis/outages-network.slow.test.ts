/** A network that cuts, drags, goes silent, or forgets single connections, while queues are at work. */
import { type Delivery, mergeMap, pipe, type Queue, run } from 'millrace'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { expectStats } from '../../support/queues.js'
import { Effects, timed } from '../../support/rig.js'
import { startProxy } from '../../support/servers/proxy.js'
import { type RedisServer, startRedis } from '../../support/servers/redis-server.js'
import { startRelay } from '../../support/servers/relay.js'
import { connects, consume, idsOf, produce } from '../../support/traffic.js'
import { gate, pause, until } from '../../support/wait.js'
import { Rig, startLiar, urlOf } from './rig.js'

let server: RedisServer
let names = 0

beforeAll(async () => {
  server = await startRedis()
})

afterAll(() => server.stop())

function freshName(): string {
  names += 1
  return `net-${names}`
}

describe.concurrent('a network under load', () => {
  it('A14, A30 all connections are reset again and again: 500 messages are handled once each', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const proxy = await rig.use(startProxy(server.port))
    const name = freshName()
    const queues = Array.from({ length: 3 }, () => rig.queue(rig.backend(proxy.url), {}, name))
    const effects = new Effects()
    const consumers = consume(queues, effects, { ms: 5 })
    let isOver = false
    let resets = 0
    const resetting = (async () => {
      for (; !isOver; resets += 1) {
        await pause(20 + Math.random() * 250)
        proxy.resetAll()
      }
    })()
    const ids = idsOf(500)
    for (let part = 0; part < 5; part += 1) {
      await produce(queues, ids.slice(100 * part, 100 * (part + 1)))
      await until('all was reset again', () => resets > part)
    }
    await until('all are handled', () => effects.size === 500, 30_000)
    isOver = true
    await resetting
    await consumers.stop()
    expect(effects.doubled).toEqual([])
    await expectStats(queues[0] as Queue<string>, {
      ackedTotal: 500,
      enqueuedTotal: 500,
      ready: 0,
      claimed: 0,
      dead: 0,
    })
  })

  it('N3 replies that take 50 ms cost time, and nothing else', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const proxy = await rig.use(startProxy(server.port))
    proxy.delay(50)
    const name = freshName()
    const queues = Array.from({ length: 3 }, () => rig.queue(rig.backend(proxy.url), {}, name))
    const effects = new Effects()
    const events = eventsOf((queues[0] as Queue<string>).source())
    const consumers = consume(queues, effects)
    await produce(queues, idsOf(500))
    await until('all are handled', () => effects.size === 500, 30_000)
    await consumers.stop()
    expect([effects.doubled, events]).toEqual([[], []])
    await expectStats(queues[0] as Queue<string>, { ackedTotal: 500, enqueuedTotal: 500, ready: 0, claimed: 0 })
  })
})

describe.concurrent('a network that swallows everything for 6 s', () => {
  it('N80, A10, C1 costs no claim with a longer lease, and with a shorter one all that is held is lost and told', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const proxy = await rig.use(startProxy(server.port))
    const backend = rig.backend(proxy.url)
    const long = rig.queue(backend, { leaseMs: 20_000 })
    const short = rig.queue(backend, { leaseMs: 2_000 })
    const elsewhere = rig.queue(rig.backend(server.url), { leaseMs: 20_000 }, short.name)
    const silent = gate()
    const told: unknown[] = []
    const handled: string[] = []
    let started = 0
    const work = async (delivery: Delivery<string>) => {
      started += 1
      delivery.signal.addEventListener('abort', () => told.push(delivery.signal.reason.why))
      await silent.promise
      handled.push(`${delivery.id} ${delivery.attempt} ${delivery.signal.aborted}`)
    }
    const longSource = long.source()
    const shortSource = short.source()
    const [longEvents, shortEvents] = [eventsOf(longSource), eventsOf(shortSource)]
    const ends = [longSource, shortSource].map((source) => run(pipe(source, mergeMap(work, 3))))
    const ids = idsOf(3)
    await Promise.all([long, short].map((queue) => queue.enqueueAll(ids.map((id) => ({ payload: id, id })))))
    await until('all are being handled', () => started === 6)

    proxy.hold()
    const began = performance.now()
    const late = long.enqueue('late', { id: 'late' })
    await until('the short leases are over', () => told.length === 3, 3_500)
    expect(told).toEqual(['expired', 'expired', 'expired'])
    // Others take them over while our handlers go on.
    const taken = await Promise.all(ids.map(() => elsewhere.receive({ timeoutMs: 5_000 })))
    expect(taken.map((delivery) => delivery?.attempt)).toEqual([2, 2, 2])
    expect(await Promise.all(taken.map((delivery) => delivery?.ack()))).toEqual(ids.map(() => 'settled'))
    await pause(6_000 - (performance.now() - began))
    silent.open()
    proxy.resume()

    expect(await late).toEqual({ id: 'late', status: 'enqueued' })
    await until('the long ones are acked', async () => (await long.stats()).ackedTotal === 4, 10_000)
    await Promise.all([longSource.stop(), shortSource.stop(), ...ends])
    expect(handled.filter((line) => line.endsWith('false')).sort()).toEqual([
      'late 1 false',
      ...ids.map((id) => `${id} 1 false`),
    ])
    for (const events of [longEvents, shortEvents]) expect(connects(events)).toEqual(['reconnecting', 'reconnected'])
    expect(shortEvents.filter(({ type }) => type === 'lease-expired')).toHaveLength(3)
    expect(longEvents.filter(({ type }) => type.startsWith('lease-'))).toEqual([])
    await expectStats(long, { ackedTotal: 4, claimed: 0, ready: 0, dead: 0 })
    await expectStats(short, { ackedTotal: 3, claimed: 0, ready: 0, dead: 0 })
  })
})

describe.concurrent('a connection that is half open', () => {
  it('A10, B22 for commands: it is found and replaced within seconds, with claims, calls and leases on their way', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const relay = await rig.use(startRelay(server.port))
    const queue = rig.queue(rig.backend(urlOf(relay)), { leaseMs: 10_000 })
    await queue.enqueueAll(['a', 'b'].map((id) => ({ payload: id, id })))
    const a = await queue.receive()
    const source = queue.source()
    const events = eventsOf(source)
    const seen: string[] = []
    source.subscribe((delivery) => {
      seen.push(`${delivery.id} ${delivery.attempt}`)
      void delivery.ack()
    })
    await until('it has had b, and listens', () => seen.length === 1 && relay.subscribers === 1)
    await queue.stats()
    const made = relay.made
    expect(relay.deafen(({ subscribes }) => !subscribes)).toBe(1)
    const tookMs = await timed(async () => {
      const [enqueued, acked] = await Promise.all([queue.enqueue('c', { id: 'c' }), a?.ack()])
      expect([enqueued.status, acked]).toEqual(['enqueued', 'settled'])
      await until('c has come', () => seen.length === 2, 5_000)
    })
    expect(tookMs).toBeLessThan(4_000)
    expect(seen).toEqual(['b 1', 'c 1'])
    expect(relay.made - made).toBeLessThan(4)
    await until('it was told', () => events.some(({ type }) => type === 'reconnected'))
    await source.stop()
    await expectStats(queue, { ackedTotal: 3, enqueuedTotal: 3, ready: 0, claimed: 0 })
  })

  it('A26, R10 for hints: meanwhile all is found by the poll, it is found and subscribed again, and read again then', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const relay = await rig.use(startRelay(server.port))
    const backend = rig.backend(urlOf(relay))
    const queue = rig.queue(backend)
    const producer = rig.queue(rig.backend(server.url), {}, queue.name)
    const source = queue.source()
    const events = eventsOf(source)
    const seen = new Map<string, number>()
    source.subscribe((delivery) => {
      seen.set(delivery.id, performance.now())
      void delivery.ack()
    })
    const latency = async (id: string, withinMs: number) => {
      const sentAt = performance.now()
      await producer.enqueue(id, { id })
      await until(`${id} has come`, () => seen.has(id), withinMs)
      return (seen.get(id) ?? 0) - sentAt
    }
    await until('it listens', () => relay.subscribers === 1)
    await latency('first', 2_500)
    // A hint, not the poll, which comes every 2 s: one of three in a row at most can be the poll's.
    const heard = [await latency('h1', 2_500), await latency('h2', 2_500), await latency('h3', 2_500)]
    expect(Math.min(...heard)).toBeLessThan(500)
    const made = relay.made
    expect(relay.deafen(({ subscribes }) => subscribes)).toBe(1)
    // The poll finds it, long before the silence of the connection is noticed.
    await latency('unheard', 3_500)
    await until('it has noticed', () => events.some(({ type }) => type === 'reconnected'), 14_000)
    expect(relay.made - made).toBeLessThanOrEqual(2)
    await until('it listens again', () => relay.subscribers === 1)
    const again = [await latency('a1', 2_500), await latency('a2', 2_500), await latency('a3', 2_500)]
    expect(Math.min(...again)).toBeLessThan(500)
    expect(connects(events)).toEqual(['reconnecting', 'reconnected'])
    await source.stop()
    await expectStats(producer, { ackedTotal: 8, ready: 0, claimed: 0 })
  })
})

/** What servers say when they are not to be had, as they say it. */
const REFUSALS = [
  'LOADING Redis is loading the dataset in memory',
  "READONLY You can't write against a read only replica. script: 4b5e, on @user_script:1.",
  'UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)',
  "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
  'CLUSTERDOWN The cluster is down',
  'TRYAGAIN Multiple keys request during rehashing of slot',
  'BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.',
  'NOREPLICAS Not enough good replicas to write.',
  "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
]

async function workedThrough(rig: Rig, refusal: string): Promise<void> {
  const liar = await rig.use(startLiar(server.port))
  const queue = rig.queue(rig.backend(liar.url))
  const source = queue.source()
  const events = eventsOf(source)
  const effects = new Effects()
  const running = run(
    pipe(
      source,
      mergeMap(({ id }: Delivery<string>) => effects.note(id), 2),
    ),
  )
  // A stream that breaks is told of below, by what it leaves undone.
  running.catch(() => {})
  await queue.stats()
  for (const [index, id] of idsOf(6).entries()) {
    if (index % 2 === 0) liar.lie(refusal, 2)
    expect(await queue.enqueue(id, { id })).toEqual({ id, status: 'enqueued' })
    await until(`${id} is handled`, () => effects.size === index + 1, 6_000)
  }
  await until('all lies are told', () => liar.left === 0)
  await until('it is told', () => events.at(-1)?.type !== 'reconnecting')
  const summary = await source.stop().then(() => running)
  expect([summary.acked, effects.doubled]).toEqual([6, []])
  expect(events.filter(({ type }) => type === 'error')).toEqual([])
  await expectStats(queue, { ackedTotal: 6, enqueuedTotal: 6, ready: 0, claimed: 0 })
}

describe.concurrent('a server that says it is not to be had now', () => {
  it.for(REFUSALS)('A14, R17 %s', async (refusal, { onTestFinished }) => {
    await workedThrough(new Rig(onTestFinished), refusal)
  })

  it('A14, R17 also as a server of version 6.2 says it of a command within a script', async ({ onTestFinished }) => {
    const refusal =
      'ERR Error running script (call to f_0123456789abcdef): @user_script:1: @user_script: 1: ' +
      "-READONLY You can't write against a read only replica. "
    await workedThrough(new Rig(onTestFinished), refusal)
  })
})
