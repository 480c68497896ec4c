/** What calls cost when few messages are there, and when a great many are; and what waiting costs. */
import type { Delivery, Queue } from 'millrace'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { expectStats } from '../../support/queues.js'
import { timed } from '../../support/rig.js'
import { type EtcdProxy, ofMethod, startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { followed } from '../../support/traffic.js'
import { pause, turn, until } from '../../support/wait.js'
import { IS_WHOLE } from '../../support/whole.js'
import { isUnary, keysIn, Rig, rangesIn } from './rig.js'

const FEW = 10
const MANY = IS_WHOLE ? 100_000 : 10_000
const BATCH = 500
/** A deeper queue lets a look at the head see a window full of it, and no more. */
const WINDOW = 256
/** A backend whose queues wait reads one of them so often, in two calls: what is ready, and what the dead have left. */
const POLL_MS = 2_000
const CALLS_OF_A_POLL = 2

/** The calls of a backend that only waits; as many polls as fit into the time, and one at its edge. */
function callsOfWaiting(ms: number): number {
  return CALLS_OF_A_POLL * (Math.floor(ms / POLL_MS) + 1)
}

let server: EtcdServer
let rig: Rig

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

beforeEach(() => {
  rig = new Rig(onTestFinished)
})

async function fill(queue: Queue<string>, count: number, more: object = {}): Promise<void> {
  for (let left = count; left > 0; left -= BATCH) {
    await queue.enqueueAll(Array.from({ length: Math.min(BATCH, left) }, () => ({ payload: 'x', ...more })))
  }
}

interface Cost {
  readonly calls: number
  readonly keys: number
  /** Ranges that the server had to sort, for which it reads all of them. */
  readonly sorted: number
  readonly ms: number
}

/** What a piece of work costs by the calls that the server got. */
async function costOf(proxy: EtcdProxy, work: () => Promise<unknown>): Promise<Cost> {
  proxy.forget()
  const ms = await timed(work)
  const ranges = rangesIn(proxy).filter(({ end, countOnly }) => end !== '' && !countOnly)
  return {
    calls: proxy.count(isUnary),
    keys: keysIn(proxy),
    sorted: ranges.filter(({ isSorted }) => isSorted).length,
    ms,
  }
}

/** All that has to be asked at first was. */
function quiet(proxy: EtcdProxy): Promise<void> {
  return until('nothing is asked', async () => {
    const before = proxy.count(isUnary)
    await pause(300)
    return proxy.count(isUnary) === before
  })
}

/** The calls that are to cost the same at any depth. */
const CALLS: readonly (readonly [string, (queue: Queue<string>) => Promise<unknown>])[] = [
  ['enqueue', (queue) => queue.enqueue('y', { id: 'y' })],
  ['duplicate', (queue) => queue.enqueue('y', { id: 'y' })],
  ['cancel', (queue) => queue.cancel('y')],
  ['claim and ack', async (queue) => (await queue.receive())?.ack()],
  ['claim and requeue', async (queue) => (await queue.receive())?.requeue()],
  ['claim and release', async (queue) => (await queue.receive())?.release()],
  ['claim and delay', async (queue) => (await queue.receive())?.requeue({ delayMs: 3_600_000 })],
  ['claim and bury', async (queue) => (await queue.receive())?.deadLetter('bad')],
  ['take', (queue) => queue.tryTake()],
  ['stats', (queue) => queue.stats()],
  ['size', (queue) => queue.size()],
  ['outcome', (queue) => queue.outcome('y', { timeoutMs: 0 })],
  ['batch', (queue) => queue.enqueueAll(Array.from({ length: 50 }, () => ({ payload: 'z' })))],
  ['pause and resume', (queue) => queue.pause().then(() => queue.resume())],
  [
    'peek',
    async (queue) => {
      for await (const _ of queue.peek({ state: 'ready', limit: 5 }));
    },
  ],
]

async function claimAndReplace(queue: Queue<string>): Promise<void> {
  expect(await (await queue.receive())?.ack()).toBe('settled')
  await queue.enqueue('x')
}

describe('a queue of ten thousand', () => {
  it('E5, N77 costs as few calls and keys as one of ten, and nothing is sorted or read whole', async () => {
    const proxy = await rig.use(startEtcdProxy(server.port))
    const backend = rig.backend(proxy.url)
    const filler = rig.backend(server.url)
    const costs = new Map<string, Cost[]>(CALLS.map(([what]) => [what, []]))
    for (const depth of [FEW, MANY]) {
      const name = `deep-${depth}`
      await fill(rig.queue(filler, {}, name), depth)
      const queue = rig.queue(backend, {}, name)
      await queue.stats()
      await (await queue.receive())?.release()
      for (const [what, call] of CALLS) costs.get(what)?.push(await costOf(proxy, () => call(queue)))
      await expectStats(queue, { dead: 1 })
    }
    const grown: unknown[] = []
    for (const [what, [few, many]] of costs) {
      console.log(`${what}: ${JSON.stringify(few)} ${JSON.stringify(many)}`)
      if (few === undefined || many === undefined) throw new Error(`${what} was not measured twice`)
      expect({ what, sorted: many.sorted }).toEqual({ what, sorted: 0 })
      if (many.calls > few.calls + 1 || many.keys > few.keys + WINDOW) grown.push([what, few, many])
    }
    expect(grown).toEqual([])
  })

  it('E5 is claimed from, and enqueued into, about as fast as one of ten, side by side', async () => {
    const backend = rig.backend(server.url)
    const [few, many] = [FEW, MANY].map((depth) => rig.queue(backend, {}, `deep-${depth}`)) as [
      Queue<string>,
      Queue<string>,
    ]
    const ratios: number[] = []
    for (let round = 0; round < 25; round += 1) {
      const [fewMs, manyMs] = [await timed(() => claimAndReplace(few)), await timed(() => claimAndReplace(many))]
      ratios.push(manyMs / fewMs)
    }
    const median = ratios.toSorted((one, other) => one - other)[12]
    console.log(`a claim, an ack and an enqueue take ${median?.toFixed(2)} times as long at ${MANY} as at ${FEW}`)
    // A server that walks through all that is ready takes ten times as long, and more.
    expect(median).toBeLessThan(3)
  })

  it('E5 a hundred claims of a hundred, and their acks, read each message once, and not those behind', async () => {
    const proxy = await rig.use(startEtcdProxy(server.port))
    const name = `deep-${MANY}`
    const queue = rig.queue(rig.backend(proxy.url), {}, name)
    expect(await queue.size()).toBeGreaterThan(MANY / 2)
    proxy.forget()
    let acked = 0
    for (let round = 0; round < 10; round += 1) {
      const deliveries = await Promise.all(Array.from({ length: 100 }, () => queue.receive()))
      const answers = await Promise.all(deliveries.map((delivery) => delivery?.ack()))
      acked += answers.filter((answer) => answer === 'settled').length
    }
    expect(acked).toBe(1_000)
    console.log(
      `claims of a hundred: ${proxy.count(isUnary) / 10} calls and ${keysIn(proxy) / 1_000} keys for each message`,
    )
    expect(keysIn(proxy) / acked).toBeLessThan(6)
    expect(proxy.count(isUnary) / acked).toBeLessThan(0.2)
  })

  it('E5 is looked at behind what was handled, which the server would walk with the rest', async () => {
    const proxy = await rig.use(startEtcdProxy(server.port))
    const queue = rig.queue(rig.backend(proxy.url))
    const ready = `millrace/${queue.name}/r/`
    await fill(queue, 1_000)
    const keys = (await server.gateway.keys(ready)).sort()
    for (let round = 0; round < 9; round += 1) {
      const deliveries = await Promise.all(Array.from({ length: 100 }, () => queue.receive()))
      await Promise.all(deliveries.map((delivery) => delivery?.ack()))
    }
    proxy.forget()
    await (await queue.receive())?.ack()
    const looks = rangesIn(proxy).filter(({ key, end }) => key.startsWith(ready) && end !== '')
    expect(looks.length).toBeGreaterThan(0)
    for (const { key } of looks) expect(key >= (keys[800] as string)).toBe(true)
  })

  it('N53 that are delayed keep an idle consumer no busier than none', async () => {
    const proxy = await rig.use(startEtcdProxy(server.port))
    const filler = rig.queue(rig.backend(server.url))
    await fill(filler, 500, { delayMs: 3_600_000 })
    const queue = rig.queue(rig.backend(proxy.url), {}, filler.name)
    const waiting = followed(queue)
    await until('it watches', () => proxy.messagesIn('Watch/Watch') > 0)
    await quiet(proxy)
    const cost = await costOf(proxy, () => pause(4_000))
    expect(cost.calls).toBeLessThanOrEqual(callsOfWaiting(cost.ms))
    expect(cost.keys).toBeLessThan(100)
    await waiting.stop()
  })
})

describe('waiting', () => {
  it('H16, N85 of 200 sources on 20 queues costs what waiting of one costs, on one connection, with a watch for each queue', async () => {
    const own = await rig.use(startEtcd())
    const proxy = await rig.use(startEtcdProxy(own.port))
    const backend = rig.backend(proxy.url)
    const queues = Array.from({ length: 20 }, (_, index) => rig.queue(backend, {}, `idle-${index}`))
    const seen: Delivery<string>[] = []
    for (const queue of queues) {
      for (let count = 0; count < 10; count += 1) {
        queue.source().subscribe({ next: (delivery) => void seen.push(delivery), error: () => {} })
      }
    }
    await until('all watch', async () => (await own.gateway.watchers()) >= 20, 10_000)
    await quiet(proxy)
    const cost = await costOf(proxy, () => pause(6_000))
    console.log(
      `idle: ${JSON.stringify(cost)}, ${proxy.connections} connections, ${await own.gateway.watchers()} watchers`,
    )
    expect(cost.calls).toBeLessThanOrEqual(callsOfWaiting(cost.ms))
    expect(cost.calls).toBeGreaterThan(0)
    expect(await own.gateway.watchers()).toBeLessThanOrEqual(20)
    expect(proxy.connections).toBeLessThanOrEqual(2)

    // One message for each queue reaches one of its sources, for a few calls.
    proxy.forget()
    const producers = queues.map((_, index) => rig.queue(rig.backend(own.url), {}, `idle-${index}`))
    await Promise.all(producers.map((queue) => queue.enqueue('a')))
    await until('all have come', () => seen.length === 20)
    await pause(500)
    expect(proxy.count(isUnary)).toBeLessThanOrEqual(20 * 6)
    await Promise.all(queues.map((queue) => queue.close({ graceMs: 0 })))
    await until('no connection stays', () => proxy.connections === 0, 1_000)
    await Promise.all(producers.map((queue) => queue.close()))
    await until('nobody watches', async () => (await own.gateway.watchers()) === 0)
    expect(await own.gateway.leases()).toEqual([])
  })

  it('C15 a thousand times, each given up, leaves no watch and no lease', async () => {
    const own = await rig.use(startEtcd())
    const queue = rig.queue(rig.backend(own.url))
    for (let round = 0; round < 1_000; round += 1) {
      const subscription = queue.source().subscribe({ error: () => {} })
      if (round % 3 === 0) await turn()
      if (round % 50 === 0) await pause(5)
      subscription.unsubscribe()
    }
    await until('at most one is left', async () => (await own.gateway.watchers()) <= 1)
    await queue.close()
    await until('none is left', async () => (await own.gateway.watchers()) === 0)
    expect(await own.gateway.leases()).toEqual([])
  })

  it('holds no lease alive in vain: an idle consumer that has claimed once costs a keepalive now and then', async () => {
    const LEASE_MS = 3_000
    const proxy = await rig.use(startEtcdProxy(server.port))
    const queue = rig.queue(rig.backend(proxy.url), { leaseMs: LEASE_MS })
    const waiting = followed(queue)
    await queue.enqueue('a', { id: 'a' })
    await until('it is acked', async () => (await queue.stats()).ackedTotal === 1)
    const cost = await costOf(proxy, () => pause(4_000))
    // Three times in its term.
    expect(proxy.messagesIn('Lease/LeaseKeepAlive')).toBeLessThanOrEqual(cost.ms / (LEASE_MS / 3) + 1)
    expect(cost.calls).toBeLessThanOrEqual(callsOfWaiting(cost.ms))
    expect(proxy.count(ofMethod('Lease/LeaseGrant'))).toBe(0)
    await waiting.stop()
  })
})
