/** The three classic recipes, through the public names alone. */
import { type Delivery, deadLetter, InvalidOptionError, mergeMap, pipe, retryLater, run } from 'millrace'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { expectStats } from '../../support/queues.js'
import { timed } from '../../support/rig.js'
import { type EtcdProxy, startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { pause, until } from '../../support/wait.js'
import { Rig } from './rig.js'

let server: EtcdServer
let rig: Rig

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

beforeEach(() => {
  rig = new Rig(onTestFinished)
})

/** Two queue objects of one name, as two processes would have them. */
function both(options: { readonly leaseMs?: number; readonly maxDeliveries?: number } = {}) {
  const one = rig.queue(rig.backend(server.url), options)
  return [one, rig.queue(rig.backend(server.url), {}, one.name)] as const
}

describe('a FIFO queue with at-most-once take', () => {
  it('N2 gives in order what was put in, and nothing then', async () => {
    const [producer, taker] = both()
    for (const payload of ['a', 'b', 'c']) await producer.enqueue(payload)
    expect([await taker.tryTake(), await taker.tryTake(), await taker.tryTake(), await taker.tryTake()]).toEqual([
      'a',
      'b',
      'c',
      undefined,
    ])
    await expectStats(producer, { ackedTotal: 3, ready: 0, claimed: 0 })
  })

  it('N5, N6 waits for the time it may, and takes at once what comes meanwhile', async () => {
    const [producer, taker] = both()
    const tookMs = await timed(async () => expect(await taker.take({ timeoutMs: 600 })).toBe(undefined))
    expect(tookMs).toBeGreaterThanOrEqual(590)
    expect(tookMs).toBeLessThan(1_500)
    const taking = taker.take()
    await pause(300)
    const arrivedMs = await timed(async () => {
      await producer.enqueue('late')
      expect(await taking).toBe('late')
    })
    expect(arrivedMs).toBeLessThan(1_000)
  })

  it('N10 an abort takes nothing', async () => {
    const [producer, taker] = both()
    const cancel = new AbortController()
    const taking = taker.take({ signal: cancel.signal })
    await pause(100)
    cancel.abort()
    await expect(taking).rejects.toMatchObject({ name: 'AbortError' })
    await producer.enqueue('a')
    expect(await taker.tryTake()).toBe('a')
  })

  it('drops what was taken by one who dies, and delivers it to nobody', async () => {
    const [producer, taker] = both()
    await producer.enqueue('a')
    expect(await producer.take()).toBe('a')
    expect(await taker.take({ timeoutMs: 300 })).toBe(undefined)
    await expectStats(taker, { ready: 0, claimed: 0, dead: 0, enqueuedTotal: 1 })
  })
})

describe('a priority queue', () => {
  it('N56 gives the lower number first, and in order of arrival what is equal', async () => {
    const [producer, taker] = both()
    const entries = [
      ['x', 65_535],
      ['c', 7],
      ['a', 0],
      ['d', 7],
      ['b', 0],
      ['y', 65_535],
      ['m', 256],
      ['l', 255],
    ] as const
    for (const [payload, priority] of entries) await producer.enqueue(payload, { priority })
    const taken: (string | undefined)[] = []
    for (let left = entries.length; left > 0; left -= 1) taken.push(await taker.take({ timeoutMs: 1_000 }))
    expect(taken.join('')).toBe('abcdlmxy')
  })

  it.each([-1, 65_536, 1.5, Number.NaN, Number.POSITIVE_INFINITY])(
    'N57 refuses priority %d before any I/O',
    async (priority) => {
      const proxy = await rig.use(startEtcdProxy(server.port))
      const queue = rig.queue(rig.backend(proxy.url))
      await expect(queue.enqueue('a', { priority })).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(queue.enqueue('a', { priority })).rejects.toMatchObject({
        field: 'enqueue.priority',
        value: priority,
      })
      expect(proxy.count()).toBe(0)
    },
  )
})

describe('a work queue', () => {
  it('claims, retries with a delay, and gives up into the dead letters', async () => {
    const [producer, worker] = both({ maxDeliveries: 3 })
    await producer.enqueueAll([
      { payload: 'good', id: 'good' },
      { payload: 'bad', id: 'bad' },
    ])
    const attempts: string[] = []
    const summary = await run(
      pipe(
        worker.source({ until: 'idle' }),
        retryLater({ baseMs: 50 }),
        mergeMap(({ payload, attempt }: Delivery<string>) => {
          attempts.push(`${payload} ${attempt}`)
          if (payload === 'bad') throw new Error('no')
        }, 2),
      ),
    )
    expect(attempts.sort()).toEqual(['bad 1', 'bad 2', 'bad 3', 'good 1'])
    expect(summary).toMatchObject({ acked: 1, requeued: 2, deadLettered: 1 })
    const letters: unknown[] = []
    for await (const { id, payload, reason, attempts: made } of producer.deadLetters)
      letters.push([id, payload, reason, made])
    expect(letters).toEqual([['bad', 'bad', expect.stringContaining('no'), 3]])
    expect([await producer.deadLetters.requeue('bad'), await producer.deadLetters.requeue('bad')]).toEqual([
      true,
      false,
    ])
    expect(await worker.receive()).toMatchObject({ id: 'bad', attempt: 1 })
  })

  it('N18 moves at once what a policy says is hopeless, to a queue of its own', async () => {
    const [producer, worker] = both()
    const hopeless = rig.queue(rig.backend(server.url))
    await producer.enqueue('bad', { id: 'bad' })
    await run(
      pipe(
        worker.source({ until: 'idle' }),
        deadLetter({ to: hopeless }),
        mergeMap(() => {
          throw new Error('never')
        }, 1),
      ),
    )
    expect(await hopeless.receive({ timeoutMs: 1_000 })).toMatchObject({ payload: 'bad' })
  })

  it('N47, N48 delays', async () => {
    const [producer, worker] = both()
    await producer.enqueue('later', { delayMs: 900 })
    await producer.enqueue('sooner', { delayMs: 300 })
    expect(await worker.tryReceive()).toBe(undefined)
    const tookMs = await timed(async () => expect((await worker.receive({ timeoutMs: 3_000 }))?.payload).toBe('sooner'))
    expect(tookMs).toBeLessThan(900)
    expect((await worker.receive({ timeoutMs: 3_000 }))?.payload).toBe('later')
  })

  it('N51 wakes a consumer that waits when a delay is over, though it was put in after it began to wait', async () => {
    const [producer, worker] = both()
    const receiving = worker.receive({ timeoutMs: 5_000 })
    await pause(200)
    const tookMs = await timed(async () => {
      await producer.enqueue('soon', { delayMs: 200 })
      expect((await receiving)?.payload).toBe('soon')
    })
    expect(tookMs).toBeGreaterThanOrEqual(190)
    expect(tookMs).toBeLessThan(1_000)
  })

  it('E8, N81 tells what becomes of its lease', async () => {
    const own = await rig.use(startEtcd())
    const queue = rig.queue(rig.backend(own.url), { leaseMs: 2_000 })
    await queue.enqueue('a', { id: 'a' })
    const source = queue.source()
    const events = eventsOf(source)
    const reasons: unknown[] = []
    const begin = (delivery: Delivery<string>) => {
      delivery.signal.addEventListener('abort', () => reasons.push(delivery.signal.reason.why))
      if (delivery.attempt === 2) void delivery.ack()
    }
    source.subscribe({ next: begin, error: () => {} })
    await until(
      'it is claimed',
      async () => (await own.gateway.leases()).length > 0 && events.some(({ type }) => type === 'delivered'),
    )
    for (const lease of await own.gateway.leases()) await own.gateway.revoke(lease)
    await until('it was told', () => events.some(({ type }) => type === 'lease-expired' || type === 'lease-lost'))
    await until('it has come again', async () => (await queue.stats()).ackedTotal === 1, 5_000)
    expect(reasons).toHaveLength(1)
    await source.stop()
  })

  it('N1 leaves nothing behind but what is counted', async () => {
    const own = await rig.use(startEtcd())
    const queue = rig.queue<string>(rig.backend(own.url), { retention: { outcomesMs: 0, maxOutcomes: 0 } })
    const secret = 'the payload of it'
    for (let round = 0; round < 5; round += 1) {
      await queue.enqueue(secret, { id: `secret-${round}` })
      expect(await (await queue.receive())?.ack()).toBe('settled')
    }
    await queue.close()
    const left = await own.gateway.list()
    expect(
      left.filter(({ key, value }) => key.includes('secret') || value.includes(secret)).map(({ key }) => key),
    ).toEqual([])
    expect(left.length).toBeLessThan(12)
    expect(await own.gateway.leases()).toEqual([])
  })

  it('writes a payload once, however often it is claimed and put back', async () => {
    const own = await rig.use(startEtcd())
    const proxy: EtcdProxy = await rig.use(startEtcdProxy(own.port))
    const queue = rig.queue<string>(rig.backend(proxy.url))
    const payload = `mark-${'x'.repeat(20_000)}`
    await queue.enqueue(payload)
    for (let round = 0; round < 3; round += 1) expect(await (await queue.receive())?.requeue()).toBe('settled')
    expect(await (await queue.receive())?.ack()).toBe('settled')
    const carrying = proxy.calls.filter(({ request }) => request.includes('mark-xxx'))
    expect(carrying).toHaveLength(1)
  })
})
