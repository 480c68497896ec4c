/** A network that cuts, drags or goes silent, and watches that die, while queues are at work. */
import { type Delivery, mergeMap, pipe, type Queue, run } from 'millrace'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { expectStats } from '../../support/queues.js'
import { Effects, timed } from '../../support/rig.js'
import { startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { startRelay } from '../../support/servers/relay.js'
import { startTcpProxy } from '../../support/servers/tcp-proxy.js'
import { connects, consume, followed, idsOf, produce } from '../../support/traffic.js'
import { gate, pause, until } from '../../support/wait.js'
import { IS_WHOLE } from '../../support/whole.js'
import { isTxn, leaseStates, Rig, urlOf } from './rig.js'

let server: EtcdServer
let names = 0

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

function freshName(): string {
  names += 1
  return `net-${names}`
}

describe.concurrent('a network under load', () => {
  it('A14, A30, E6 all connections are reset again and again: 150 messages are handled once each', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const line = await rig.use(startTcpProxy(server.port))
    const name = freshName()
    const queues = Array.from({ length: 3 }, () => rig.queue(rig.backend(urlOf(line)), {}, name))
    const effects = new Effects()
    const consumers = consume(queues, effects, { ms: 5 })
    let isOver = false
    const resetting = (async () => {
      let resets = 0
      for (let before = -1; !isOver; resets += 1) {
        await pause(50 + Math.random() * 350)
        // A machine that is too slow to get anything done meanwhile would have an outage, which ends calls.
        await until('it got on', () => isOver || effects.size > before, 30_000)
        before = effects.size
        line.resetAll()
      }
      return resets
    })()
    await produce(queues, idsOf(150))
    await until('all are handled', () => effects.size === 150, 60_000)
    isOver = true
    expect(await resetting).toBeGreaterThan(2)
    await consumers.stop()
    expect(effects.doubled).toEqual([])
    await expectStats(queues[0] as Queue<string>, {
      ackedTotal: 150,
      enqueuedTotal: 150,
      ready: 0,
      claimed: 0,
      dead: 0,
    })
  })

  it('N3 replies that take 50 ms cost time, and nothing else', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const line = await rig.use(startTcpProxy(server.port))
    line.delay(50)
    const name = freshName()
    const queues = Array.from({ length: 3 }, () => rig.queue(rig.backend(urlOf(line)), {}, name))
    const effects = new Effects()
    const events = eventsOf((queues[0] as Queue<string>).source())
    const consumers = consume(queues, effects)
    await produce(queues, idsOf(100))
    await until('all are handled', () => effects.size === 100, 60_000)
    await consumers.stop()
    expect([effects.doubled, events]).toEqual([[], []])
    await expectStats(queues[0] as Queue<string>, { ackedTotal: 100, enqueuedTotal: 100, ready: 0, claimed: 0 })
  })

  it.for([
    [14, 'etcdserver: leader changed', false],
    [14, 'etcdserver: request timed out', true],
    [14, 'etcdserver: no leader', false],
    [14, 'transport is closing', true],
    [8, 'etcdserver: too many requests', false],
    [4, 'context deadline exceeded', true],
    [1, 'context canceled', true],
    [13, 'stream terminated by RST_STREAM with error code: INTERNAL_ERROR', true],
    [14, 'etcdserver: server stopped', false],
  ] as const)(
    'A14 a member that says %i %s (having done it: %s) is asked again',
    async ([code, message, ran], { onTestFinished }) => {
      const rig = new Rig(onTestFinished)
      const proxy = await rig.use(startEtcdProxy(server.port))
      const queue = rig.queue(rig.backend(proxy.url), {}, freshName())
      const effects = new Effects()
      const source = queue.source()
      const events = eventsOf(source)
      const running = run(
        pipe(
          source,
          mergeMap(({ id }: Delivery<string>) => effects.note(id), 2),
        ),
      )
      running.catch(() => {})
      await queue.stats()
      for (const [index, id] of idsOf(6).entries()) {
        const lie = proxy.lie({ code, message, times: index % 2 === 0 ? 2 : 0, match: isTxn, ran })
        expect(await queue.enqueue(id, { id })).toEqual({ id, status: 'enqueued' })
        await until(`${id} is handled`, () => effects.size === index + 1, 8_000)
        lie.end()
      }
      await until('it is told', () => events.at(-1)?.type !== 'reconnecting')
      const summary = await source.stop().then(() => running)
      expect([summary.acked, effects.doubled]).toEqual([6, []])
      expect(events.filter(({ type }) => type === 'error')).toEqual([])
      await expectStats(queue, { ackedTotal: 6, enqueuedTotal: 6, ready: 0, claimed: 0 })
    },
  )
})

describe.concurrent('a network that swallows everything for 6 s', () => {
  it('N80, A10, C1, C3, N81 costs no claim with a longer lease, and with a shorter one all that is held is lost and told', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const line = await rig.use(startTcpProxy(server.port))
    const backend = rig.backend(urlOf(line))
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
    const [longSource, shortSource] = [long.source(), short.source()]
    const [longEvents, shortEvents] = [eventsOf(longSource), eventsOf(shortSource)]
    const ends = [longSource, shortSource].map((source) => run(pipe(source, mergeMap(work, 3))))
    for (const end of ends) end.catch(() => {})
    const ids = idsOf(3)
    await Promise.all([long, short].map((queue) => queue.enqueueAll(ids.map((id) => ({ payload: id, id })))))
    await until('all are being handled', () => started === 6)

    line.hold()
    const began = performance.now()
    const late = long.enqueue('late', { id: 'late' })
    late.catch(() => {})
    await until('the short leases are over', () => told.length === 3, 3_500)
    expect(told).toEqual(['expired', 'expired', 'expired'])
    // Others take them over while our handlers go on.
    const taken = await Promise.all(ids.map(() => elsewhere.receive({ timeoutMs: 5_000 })))
    expect(performance.now() - began).toBeLessThan(2_000 + 1_500)
    expect(taken.map((delivery) => delivery?.attempt)).toEqual([2, 2, 2])
    expect(await Promise.all(taken.map((delivery) => delivery?.ack()))).toEqual(ids.map(() => 'settled'))
    await pause(Math.max(0, 6_000 - (performance.now() - began)))
    silent.open()
    line.resume()

    expect(await late).toEqual({ id: 'late', status: 'enqueued' })
    await until('the long ones are acked', async () => (await long.stats()).ackedTotal === 4, 10_000)
    await Promise.all([longSource.stop(), shortSource.stop(), ...ends])
    expect(handled.filter((each) => each.endsWith('false')).sort()).toEqual([
      'late 1 false',
      ...ids.map((id) => `${id} 1 false`),
    ])
    for (const heard of [connects(longEvents), connects(shortEvents)]) {
      expect([heard[0], heard.at(-1)]).toEqual(['reconnecting', 'reconnected'])
    }
    expect(shortEvents.filter(({ type }) => type === 'lease-expired')).toHaveLength(3)
    expect(longEvents.filter(({ type }) => type === 'lease-expired' || type === 'lease-lost')).toEqual([])
    expect(leaseStates(longEvents)).not.toContain('expired')
    expect(leaseStates(shortEvents)).toContain('expired')
    await expectStats(long, { ackedTotal: 4, claimed: 0, ready: 0, dead: 0 })
    await expectStats(short, { ackedTotal: 3, claimed: 0, ready: 0, dead: 0 })
  })
})

/** A poll of a queue whose poll comes seldom is later than that. */
const LONG_BEFORE_A_POLL_MS = 15_000

/** Queues whose poll comes seldom, every 32 s, because so many share it: what comes soon was not found by it. */
function seldomPolled(rig: Rig, url: string): Queue<string> {
  const backend = rig.backend(url)
  for (let count = 0; count < 15; count += 1)
    rig
      .queue(backend)
      .source()
      .subscribe({ error: () => {} })
  return rig.queue(backend, {}, freshName())
}

/** Signs of life and pings are missed after 9 s; what is asked for is given up sooner. */
const HALF_OPEN_MS = 12_000

describe.concurrent('a connection that is half open', () => {
  it('A10, A26 is found and replaced within seconds, with claims and calls on their way', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const relay = await rig.use(startRelay(server.port))
    const queue = rig.queue(rig.backend(urlOf(relay)), { leaseMs: 20_000 })
    const producer = rig.queue(rig.backend(server.url), {}, queue.name)
    await producer.enqueue('held', { id: 'held' })
    const held = await queue.receive()
    const waiting = followed(queue)
    await producer.enqueue('a', { id: 'a' })
    await until('it has come', () => waiting.seen.length === 1)
    const made = relay.made
    expect(relay.deafen()).toBeGreaterThan(0)
    const tookMs = await timed(async () => {
      await producer.enqueue('b', { id: 'b' })
      const [acked, enqueued] = await Promise.all([held?.ack(), queue.enqueue('c', { id: 'c' })])
      expect([acked, enqueued]).toEqual(['settled', { id: 'c', status: 'enqueued' }])
      await until('both have come', () => waiting.seen.length === 3, HALF_OPEN_MS)
    })
    expect(tookMs).toBeLessThan(HALF_OPEN_MS)
    expect(relay.made).toBeGreaterThan(made)
    expect(waiting.seen).toEqual(['a 1', 'b 1', 'c 1'])
    await waiting.stop()
    await expectStats(producer, { ackedTotal: 4, ready: 0, claimed: 0 })
  })

  it('A10, A26 is found and replaced within seconds by who only waits', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const relay = await rig.use(startRelay(server.port))
    const queue = seldomPolled(rig, urlOf(relay))
    const producer = rig.queue(rig.backend(server.url), {}, queue.name)
    const waiting = followed(queue)
    await producer.enqueue('a', { id: 'a' })
    // Nothing is on its way any more but the watch.
    await until('it is acked', () => waiting.events.some(({ type }) => type === 'settled'))
    await queue.stats()
    await queue.stats()
    const made = relay.made
    expect(relay.deafen()).toBeGreaterThan(0)
    const tookMs = await timed(async () => {
      await producer.enqueue('b', { id: 'b' })
      await until('it has come', () => waiting.seen.length === 2, HALF_OPEN_MS)
    })
    expect(tookMs).toBeLessThan(HALF_OPEN_MS)
    expect(relay.made).toBeGreaterThan(made)
    await waiting.stop()
    await expectStats(producer, { ackedTotal: 2, ready: 0, claimed: 0 })
  })
})

describe.concurrent('a watch', () => {
  it('E15, N7, N82 that dies while a consumer waits is made anew, and what came in the gap is read then', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const proxy = await rig.use(startEtcdProxy(server.port))
    const queue = seldomPolled(rig, proxy.url)
    const producer = rig.queue(rig.backend(server.url), {}, queue.name)
    const waiting = followed(queue)
    await until('it watches', () => proxy.messagesIn('Watch/Watch') > 0)
    await pause(500)
    for (let round = 0; round < 6; round += 1) {
      if (round % 2 === 0) proxy.resetAll()
      const putting = producer.enqueue('a', { id: `a${round}` })
      if (round % 2 === 1) proxy.resetAll()
      await putting
      await until('it has come', () => waiting.seen.length === round + 1, LONG_BEFORE_A_POLL_MS)
      await pause(300)
    }
    await waiting.stop()
    await expectStats(producer, { ackedTotal: 6, ready: 0, claimed: 0 })
  })

  it('E12, C11 that would begin in a past that is forgotten begins anew, and nothing is missed or doubled', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const own = await rig.use(startEtcd())
    const line = await rig.use(startTcpProxy(own.port))
    const queue = seldomPolled(rig, urlOf(line))
    const producer = rig.queue(rig.backend(own.url), {}, queue.name)
    const waiting = followed(queue)
    await producer.enqueue('first', { id: 'first' })
    await until('it has come', () => waiting.seen.length === 1)
    for (let round = 0; round < 3; round += 1) {
      await line.refuse()
      line.resetAll()
      for (const id of idsOf(20)) await producer.enqueue(id, { id: `${round}-${id}` })
      await own.gateway.compact()
      await line.accept()
      await until('all have come', () => waiting.seen.length === 1 + 20 * (round + 1), LONG_BEFORE_A_POLL_MS)
    }
    // And it hears again.
    await producer.enqueue('last', { id: 'last' })
    await until('it has come', () => waiting.seen.length === 62, LONG_BEFORE_A_POLL_MS)
    expect(new Set(waiting.seen).size).toBe(62)
    await waiting.stop()
  })

  it('E13 that is cut again and again while it catches up with hundreds of changes misses nothing', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const own = await rig.use(startEtcd())
    const proxy = await rig.use(startEtcdProxy(own.port))
    const queue = seldomPolled(rig, proxy.url)
    const producer = rig.queue(rig.backend(own.url), {}, queue.name)
    const waiting = followed(queue)
    await until('it watches', () => proxy.messagesIn('Watch/Watch') > 0)
    // Whole, that is more revisions than the server sends in one piece.
    const count = IS_WHOLE ? 2_400 : 200
    let isOver = false
    const cutting = (async () => {
      while (!isOver) {
        proxy.resetAll()
        await pause(40)
      }
    })()
    for (let from = 0; from < count; from += 2) {
      await producer.enqueueAll(idsOf(2).map((id) => ({ payload: id, id: `${from}-${id}` })))
    }
    await pause(500)
    isOver = true
    await cutting
    await until('all have come', () => waiting.seen.length === count, 60_000)
    expect(waiting.seen.filter((each) => !each.endsWith(' 1'))).toEqual([])
    expect(new Set(waiting.seen).size).toBe(count)
    await waiting.stop()
  })

  it('N82 whose server stays away leaves a waiter with an error in its time, not without end', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const own = await rig.use(startEtcd())
    const queue = rig.queue(rig.backend(own.url))
    const receiving = queue.receive({ timeoutMs: 5_000 }).catch(({ name }: Error) => name)
    await until('it waits', async () => (await own.gateway.watchers()) > 0)
    await own.kill()
    const tookMs = await timed(async () => expect(await receiving).toBe('BackendUnavailableError'))
    expect(tookMs).toBeLessThan(8_000)
  })
})
