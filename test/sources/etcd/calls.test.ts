/** What messages cost, counted in calls to the server. Time goes there, and calls can be counted exactly. */
import { mergeMap, pipe, type Queue, run } from 'millrace'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { expectStats } from '../../support/queues.js'
import { type EtcdProxy, startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { until } from '../../support/wait.js'
import { isUnary, Rig } from './rig.js'

/** What a queue object does once: a lease with its marker, a look at the head, at other sessions, at how many outcomes there are. */
const TO_BEGIN = 8

let server: EtcdServer
let rig: Rig
let proxy: EtcdProxy

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

beforeEach(async () => {
  rig = new Rig(onTestFinished)
  proxy = await rig.use(startEtcdProxy(server.port))
})

/** A queue whose calls are counted, and another object of it whose calls are not. */
async function both() {
  const backend = rig.backend(proxy.url)
  const counted = rig.queue<number>(backend)
  const other = rig.queue<number>(rig.backend(server.url), {}, counted.name)
  await counted.size()
  await other.size()
  return { backend, counted, other }
}

async function callsOf(work: () => PromiseLike<unknown>): Promise<number> {
  const before = proxy.count(isUnary)
  await work()
  return proxy.count(isUnary) - before
}

/** Handles so many messages with so many handlers. */
async function handle(queue: Queue<number>, count: number, lanes: number): Promise<void> {
  const stop = new AbortController()
  let left = count
  const handler = async () => {
    left -= 1
    if (left === 0) stop.abort()
  }
  await run(pipe(queue.source(), mergeMap(handler, lanes)), { signal: stop.signal })
}

const entries = (count: number) => Array.from({ length: count }, (_, payload) => ({ payload }))

describe('calls', { timeout: 30_000 }, () => {
  it.each([1, 10, 100])('E1 a claim and the ack before it are one for %d handlers at once', async (lanes) => {
    const { counted, other } = await both()
    for (let turn = 0; turn < 20; turn += 1) await other.enqueueAll(entries(lanes))
    expect(await callsOf(() => handle(counted, lanes * 20, lanes))).toBeLessThanOrEqual(20 + 1 + TO_BEGIN)
    await expectStats(other, { ackedTotal: lanes * 20, ready: 0, claimed: 0 })
  })

  it('E1 a message that somebody waits for costs its claim and its ack, and no look at what is empty', async () => {
    const { counted, other } = await both()
    const handled: number[] = []
    const stop = new AbortController()
    const running = run(
      pipe(
        counted.source(),
        mergeMap(async ({ payload }) => void handled.push(payload), 1),
      ),
      { signal: stop.signal },
    )
    const calls = await callsOf(async () => {
      for (let payload = 0; payload < 10; payload += 1) {
        await other.enqueue(payload)
        await until('it is acked', async () => (await other.stats()).ackedTotal === payload + 1)
      }
    })
    stop.abort()
    await running
    expect(handled).toEqual(entries(10).map(({ payload }) => payload))
    // Now and then it looks for what others have left, or by itself.
    expect(calls).toBeLessThanOrEqual(2 * 10 + TO_BEGIN + 5)
  })

  it('E1 an enqueue is one, also the first of a session, and two where others come between', async () => {
    const { counted, other } = await both()
    expect(await callsOf(() => counted.enqueue(0))).toBe(1)
    await other.enqueue(1)
    await counted.enqueue(2)
    await other.enqueue(3)
    expect(await callsOf(() => counted.enqueue(4))).toBe(2)
    expect(await callsOf(() => counted.enqueue(5))).toBe(1)
    const received: (number | undefined)[] = []
    for (let left = 6; left > 0; left -= 1) received.push(await other.tryTake())
    expect(received).toEqual([0, 1, 2, 3, 4, 5])
  })

  it('E1 a forward is one', async () => {
    const { backend, counted } = await both()
    const to = rig.queue<number>(backend)
    await counted.enqueueAll(entries(4))
    const first = await counted.tryReceive()
    expect(await first?.forward(to, 0)).toBe('settled')
    for (const target of [to, counted]) {
      const delivery = await counted.tryReceive()
      expect(await callsOf(async () => expect(await delivery?.forward(target, 1)).toBe('settled'))).toBe(1)
    }
    await expectStats(to, { ready: 2, enqueuedTotal: 2 })
    await expectStats(counted, { ready: 2, forwardedTotal: 3, claimed: 0 })
  })

  it('E1 stats, a sweep with nothing to do, opening and closing are one each, and an outcome is three', async () => {
    const { counted, other } = await both()
    await other.enqueue(1)
    expect(await callsOf(() => counted.stats())).toBe(1)
    await counted.enqueue(2, { id: 'mine' })
    for (let left = 2; left > 0; left -= 1) await (await other.tryReceive())?.ack()
    // The first looks once whether any can be outlived; each is followed by a sweep.
    await counted.outcome('mine')
    expect(await callsOf(() => counted.outcome('mine'))).toBeLessThanOrEqual(3 + 1)
    expect(await callsOf(() => counted.close())).toBe(1)
    await expectStats(other, { enqueuedTotal: 2, ackedTotal: 2 })

    const driver = rig.backend(proxy.url).open(counted.name, { close: async () => {} })
    expect(await callsOf(() => driver.settings({}))).toBe(1)
    await driver.sweep(100)
    expect(await callsOf(() => driver.sweep(100))).toBe(1)
    expect(await callsOf(() => driver.close())).toBe(0)
  })
})

describe('the end of a watch', { timeout: 30_000 }, () => {
  it('D1 disturbs no call that is on its way, nor the connection', async () => {
    const { counted, other } = await both()
    for (let payload = 0; payload < 10; payload += 1) {
      // Each waits on a watch of its own, which ends with it.
      const taking = counted.take()
      await other.enqueue(payload)
      expect(await taking).toBe(payload)
      await Promise.all([counted.stats(), counted.stats()])
    }
    // At most one for the calls, and one for each kind of stream.
    expect(new Set(proxy.calls.map(({ connection }) => connection)).size).toBeLessThanOrEqual(3)
    await until('no call is left', () => proxy.count((call) => isUnary(call) && call.open) === 0)
  })
})

describe('what is known of before', { timeout: 30_000 }, () => {
  it('X26 refuses no forward that there is room for by now', async () => {
    const { backend, counted } = await both()
    const there = rig.queue<number>(rig.backend(server.url), { limits: { maxLength: 1 } })
    const to = rig.queue<number>(backend, {}, there.name)
    await there.size()
    await counted.enqueueAll(entries(4))
    const forwarded = async (payload: number) => (await counted.tryReceive())?.forward(to, payload)
    expect(await forwarded(1)).toBe('settled')
    await there.configure({ limits: { maxLength: 3 } })
    expect(await forwarded(2)).toBe('settled')
    await there.configure({ limits: { maxLength: 3, maxPayloadBytes: 1 } })
    await expect(forwarded(33)).rejects.toThrow('maxPayloadBytes')
    await there.configure({ limits: { maxLength: 3, maxPayloadBytes: 100 } })
    expect(await forwarded(33)).toBe('settled')
    await expectStats(there, { ready: 3 })
  })

  it('E1 counts no message twice and none less when it is folded into what others have folded meanwhile', async () => {
    const { counted, other } = await both()
    const third = rig.queue<number>(rig.backend(server.url), {}, counted.name)
    for (const queue of [counted, other, third]) await queue.enqueue(1)
    await other.close()
    await Promise.all([counted.close(), third.close()])
    const late = rig.queue<number>(rig.backend(server.url), {}, counted.name)
    await expectStats(late, { enqueuedTotal: 3, ready: 3 })
    expect(await server.gateway.keys(`millrace/${counted.name}/s/`)).toEqual([`millrace/${counted.name}/s/0`])
  })
})
