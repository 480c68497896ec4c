import type { Redis } from 'ioredis'
import { afterAll, describe, expect, it } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { backendOn, Client, inspect, queueOn } from './harness.js'

const server = await startRedis()
afterAll(() => server.stop())

const HOUR_MS = 3_600_000

function rigged(): { queue: Client; redis: Redis; key: (suffix: string) => string } {
  const queue = new Client(backendOn(server.url))
  return { queue, redis: inspect(server), key: (suffix) => `millrace:{${queue.name}}:${suffix}` }
}

describe('a payload that is missing', () => {
  it('F12 makes its message a dead letter with a reason, and the next one comes', async () => {
    const { queue, redis, key } = rigged()
    await queue.enqueue('a', 'b')
    await redis.hdel(key('p'), 'a')
    expect((await queue.claim(1)).map(({ id }) => id)).toEqual(['b'])
    const { items } = await queue.driver.deadLetters({ limit: 10 })
    expect(items).toMatchObject([{ id: 'a', reason: 'its payload is missing from the store' }])
    expect(conserved(await queue.stats())).toBe(true)
    // Brought back it is one again, and nothing spins.
    expect(await queue.driver.requeueDead(['a'], queue.token())).toEqual([true])
    expect(await queue.claim(1)).toEqual([])
    expect(await queue.stats()).toMatchObject({ dead: 1, claimed: 1, ready: 0 })
  })

  it('F12 is told of to a source, which lives', async () => {
    const { queue, redis, key } = rigged()
    const consumer = queueOn(backendOn(server.url), {}, queue.name)
    for (const id of ['a', 'b', 'c']) await consumer.enqueue(id, { id })
    await redis.hdel(key('p'), 'a', 'b')
    expect((await consumer.receive({ timeoutMs: 2_000 }))?.id).toBe('c')
    const dead: string[] = []
    for await (const { id, reason } of consumer.deadLetters) dead.push(`${id}: ${reason}`)
    expect(dead).toEqual(['a', 'b'].map((id) => `${id}: its payload is missing from the store`))
  })
})

describe('a record that is missing', () => {
  it('is skipped, once, and counted as dropped', async () => {
    const { queue, redis, key } = rigged()
    await queue.enqueue('a', 'b', 'c')
    await redis.hdel(key('m'), 'a', 'c')
    expect((await queue.claim(5)).map(({ id }) => id)).toEqual(['b'])
    expect(await queue.stats()).toMatchObject({ ready: 0, claimed: 1, droppedTotal: 2 })
    expect(conserved(await queue.stats())).toBe(true)
  })

  it('is counted once, also where it had a time to live', async () => {
    const { queue, redis, key } = rigged()
    await queue.enqueue({ id: 'a', ttlMs: 40 })
    await redis.hdel(key('m'), 'a')
    expect(await queue.claim(5)).toEqual([])
    await expect.poll(() => queue.swept(() => redis.exists(key('t')))).toBe(0)
    expect(await queue.stats()).toMatchObject({ ready: 0, droppedTotal: 1 })
    expect(conserved(await queue.stats())).toBe(true)
  })

  it.each(['delayed', 'claimed'] as const)('is struck out where it was %s, when that is due', async (state) => {
    const { queue, redis, key } = rigged()
    await queue.enqueue({ id: 'a', delayMs: state === 'delayed' ? 30 : 0 })
    if (state === 'claimed') await queue.claim(1, { leaseMs: 30 })
    await redis.hdel(key('m'), 'a')
    await expect.poll(async () => (await queue.statsAfterSweep())[state]).toBe(0)
    expect(await queue.claim()).toEqual([])
    expect(conserved(await queue.stats())).toBe(true)
  })

  it('among a thousand at the head keeps nobody from the message behind them', async () => {
    const { queue, redis, key } = rigged()
    const gone = Array.from({ length: 1_000 }, (_, index) => `gone${index}`)
    await queue.enqueue(...gone, 'here')
    await redis.hdel(key('m'), ...gone)
    const consumer = queueOn(backendOn(server.url), {}, queue.name)
    const askedAt = performance.now()
    expect((await consumer.receive({ timeoutMs: 4_000 }))?.id).toBe('here')
    // It is ready: a slow poll is not what it should have to wait for.
    expect(performance.now() - askedAt).toBeLessThan(1_000)
  })

  it.each([
    ['without ageing', null],
    ['with ageing', { stepMs: HOUR_MS, cap: 65_535 }],
  ])('is no obstacle to what is dropped to make room, %s', async (_, ageing) => {
    const { queue, redis, key } = rigged()
    await queue.driver.configure({
      ageing,
      limits: { maxLength: 3, maxBytes: null, maxPayloadBytes: 100, whenFull: 'dropOldest' },
    })
    await queue.enqueue('a', 'b', 'c')
    await redis.hdel(key('m'), 'a')
    expect(await queue.enqueue('d', 'e')).toEqual(['enqueued', 'enqueued'])
    expect(await queue.drain()).toEqual(['c', 'd', 'e'])
    expect(conserved(await queue.stats())).toBe(true)
  })

  it('leaves nothing behind in the order of ages, once it is skipped', async () => {
    const { queue, redis, key } = rigged()
    const limits = { maxLength: 3, maxBytes: null, maxPayloadBytes: 100, whenFull: 'dropOldest' } as const
    await queue.driver.configure({ ageing: { stepMs: HOUR_MS, cap: 65_535 }, limits })
    await queue.enqueue('a', 'b')
    await redis.hdel(key('m'), 'a')
    expect(await queue.drain()).toEqual(['b'])
    expect(await redis.exists(key('r'), key('o'))).toBe(0)
    expect((await queue.stats()).oldestReadyAgeMs).toBe(0)
    expect(await queue.enqueue('c', 'd', 'e')).toEqual(['enqueued', 'enqueued', 'enqueued'])
    expect(await queue.enqueue('f')).toEqual(['enqueued'])
    expect(await queue.drain()).toEqual(['d', 'e', 'f'])
  })

  it('is not charged for ever against a bound of bytes', async () => {
    const { queue, redis, key } = rigged()
    const limits = { maxLength: null, maxBytes: 6, maxPayloadBytes: 100, whenFull: 'reject' } as const
    await queue.driver.configure({ limits })
    await queue.enqueue('a', 'b')
    await redis.hdel(key('m'), 'a', 'b')
    expect(await queue.claim(5)).toEqual([])
    expect(await queue.stats()).toMatchObject({ ready: 0, claimed: 0, delayed: 0 })
    expect(await queue.enqueue('c')).toEqual(['enqueued'])
  })

  it('is no obstacle to listings, purges and outcomes', async () => {
    const { queue, redis, key } = rigged()
    await queue.enqueue('a', 'b', { id: 'later', delayMs: HOUR_MS })
    await redis.hdel(key('m'), 'a', 'later')
    expect((await queue.driver.list('ready', { limit: 10 })).items.map(({ id }) => id)).toEqual(['b'])
    expect((await queue.driver.list('delayed', { limit: 10 })).items).toEqual([])
    expect(await queue.driver.outcome('a', false)).toEqual({ state: 'unknown' })
    expect(await queue.driver.cancel('a', queue.token())).toBe('unknown')
    await queue.driver.purge(['ready', 'delayed'], 10, queue.token())
    expect(await queue.stats()).toMatchObject({ ready: 0, delayed: 0 })
    expect(conserved(await queue.stats())).toBe(true)
    // The id is free again.
    expect(await queue.enqueue('a')).toEqual(['enqueued'])
    expect(await queue.drain()).toEqual(['a'])
  })
})

describe('an entry that is missing', () => {
  it.each(['ready', 'delayed', 'claimed', 'dead'] as const)('B10 of what is %s is found by an audit', async (state) => {
    const { queue, redis, key } = rigged()
    await queue.enqueue({ id: 'a', delayMs: state === 'delayed' ? 1_500 : 0 })
    const [claim] = state === 'claimed' || state === 'dead' ? await queue.claim(1, { leaseMs: 1_000 }) : []
    if (claim && state === 'dead') await queue.bury(claim)
    expect(await redis.del(key({ ready: 'r', delayed: 'd', claimed: 'c', dead: 'x' }[state]))).toBe(1)
    if (state === 'dead') {
      await expect.poll(async () => (await queue.statsAfterSweep()).dead, { timeout: 4_000 }).toBe(1)
      return
    }
    const idle = queueOn(backendOn(server.url), {}, queue.name)
    const delivery = await idle.receive({ timeoutMs: 4_500 })
    expect(delivery).toMatchObject({ id: 'a', attempt: state === 'claimed' ? 2 : 1 })
    if (claim) expect(await queue.ack(claim)).toEqual(['stale'])
    expect(await delivery?.ack()).toBe('settled')
    expect(conserved(await queue.stats())).toBe(true)
  })

  it('of an outcome leaves no record behind that is never forgotten', async () => {
    const { queue, redis, key } = rigged()
    await queue.driver.configure({ retention: { outcomesMs: 50, maxOutcomes: 10 } })
    await queue.enqueue('a')
    await queue.drain()
    await redis.del(key('e'))
    await expect.poll(() => queue.swept(() => redis.hkeys(key('m'))), { timeout: 4_500 }).toEqual([])
  })
})
