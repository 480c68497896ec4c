import { afterAll, describe, expect, it } from 'vitest'
import { startRedis } from '../../support/servers/redis-server.js'
import { backendOn, Client, changeState, inspect, queueOn } from './harness.js'

const server = await startRedis()
afterAll(() => server.stop())

const HOUR_MS = 3_600_000

/** Names whose order by letters is against that of their numbers. */
function reversed(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `m${String(count - index).padStart(5, '0')}`)
}

function client(): Client {
  return new Client(backendOn(server.url))
}

async function listed({ driver }: Client, state: 'ready' | 'delayed' | 'claimed', limit: number): Promise<string[]> {
  const ids: string[] = []
  for (let after: string | undefined; ; ) {
    const page = await driver.list(state, { limit, ...(after !== undefined && { after }) })
    ids.push(...page.items.map(({ id }) => id))
    if (page.next === undefined) return ids
    after = page.next
  }
}

describe('order', () => {
  it('N31 N53 of a batch is kept when it becomes due in one instant, though it is more than one call promotes', async () => {
    const queue = client()
    const ids = reversed(700)
    await queue.enqueue(...ids.map((id) => ({ id, delayMs: 30 })))
    await expect.poll(async () => (await queue.driver.sweep(1)).moved).toBe(1)
    const found: string[] = []
    for (let index = 0; index < ids.length; index += 1) {
      const claim = await queue.one()
      found.push(claim.id)
      await queue.ack(claim)
    }
    expect(found).toEqual(ids)
  })

  it('N35 of lapsed claims is their old one, though they are more than one call returns', async () => {
    const queue = client()
    const ids = reversed(500)
    await queue.enqueue(...ids)
    expect(await queue.claim(500, { leaseMs: 30 })).toHaveLength(500)
    await expect.poll(async () => (await queue.driver.sweep(1)).moved).toBe(1)
    expect((await queue.claim(100)).map(({ id }) => id)).toEqual(ids.slice(0, 100))
  })

  it('N48 of a listing of what is delayed is that in which it will come', async () => {
    const queue = client()
    const ids = reversed(50)
    await queue.enqueue(...ids.map((id) => ({ id, delayMs: HOUR_MS })))
    expect(await listed(queue, 'delayed', 7)).toEqual(ids)
  })

  it('N60 of steps of ageing that are no whole milliseconds is kept', async () => {
    const queue = client()
    await queue.driver.configure({ ageing: { stepMs: 1.4, cap: 65_535 } })
    await queue.enqueue(...[3, 2, 1, 0].map((priority) => ({ id: `p${priority}`, priority })))
    expect(await queue.drain()).toEqual(['p0', 'p1', 'p2', 'p3'])
    await queue.driver.configure({ ageing: { stepMs: 1.2, cap: 65_535 } })
    await queue.enqueue({ id: 'a', priority: 2 }, { id: 'b', priority: 1 }, { id: 'c', priority: 0 })
    expect(await queue.drain()).toEqual(['c', 'b', 'a'])
  })
})

describe('counters', () => {
  it.each([2 ** 31 - 3, 2 ** 32 - 3, 2 ** 40 - 3, 2 ** 53 - 20])(
    'F14 that begin at %d count on, and keep order',
    async (start) => {
      const queue = client()
      const redis = inspect(server)
      await queue.enqueue('first')
      await redis.hset(`millrace:{${queue.name}}:q`, 'enqueued', start, 'acked', start)
      await changeState(redis, queue.name, { arrivals: start, fences: start, deaths: start })
      const ids = reversed(9)
      await queue.enqueue(...ids)
      expect(await listed(queue, 'ready', 2)).toEqual(['first', ...ids])
      const claims = await queue.claim(10)
      expect(claims.map(({ id }) => id)).toEqual(['first', ...ids])
      expect(claims.map(({ fence }) => fence)).toEqual(claims.map((_, index) => start + 1 + index))
      expect(new Set(claims.map(({ token }) => token)).size).toBe(10)
      expect(await queue.bury(...claims.slice(0, 5))).toEqual(['dead', 'dead', 'dead', 'dead', 'dead'])
      expect(await queue.ack(...claims.slice(5))).toEqual(['acked', 'acked', 'acked', 'acked', 'acked'])
      const dead = await queue.driver.deadLetters({ limit: 10 })
      expect(dead.items.map(({ id }) => id)).toEqual(['first', ...ids.slice(0, 4)])
      expect(await queue.stats()).toMatchObject({ enqueuedTotal: start + 9, ackedTotal: start + 5, dead: 5 })
    },
  )
})

describe('a sweep', () => {
  it('that moves less than its limit has left nothing that is due', async () => {
    const queue = client()
    await queue.enqueue(...reversed(300).map((id) => ({ id, delayMs: 1 })))
    await expect.poll(async () => (await queue.driver.sweep(1)).moved).toBe(1)
    const { moved, nextDueMs } = await queue.driver.sweep(256)
    expect([moved, moved < 256 && nextDueMs !== undefined]).toEqual([moved, false])
    expect((await queue.stats()).delayed).toBe(0)
  })

  it('moves as much as it may also behind a claim of the same turn', async () => {
    const queue = client()
    await queue.enqueue(...reversed(300).map((id) => ({ id, delayMs: 1 })))
    await expect.poll(async () => (await queue.driver.sweep(1)).moved).toBe(1)
    const [claims, { moved }] = await Promise.all([queue.claim(1), queue.driver.sweep(256)])
    expect([claims.length, moved]).toEqual([1, 256])
    expect((await queue.driver.list('delayed', { limit: 300 })).items).toEqual([])
  })
})

describe('a claim of none', () => {
  it('grants none', async () => {
    const queue = client()
    await queue.enqueue('a', 'b')
    expect(await queue.claim(0)).toEqual([])
    expect(await queue.stats()).toMatchObject({ ready: 2, claimed: 0 })
  })
})

describe('a page', () => {
  it.each(['delayed', 'dead', 'claimed'] as const)(
    'of what is %s takes nothing away, whatever the ids are',
    async (state) => {
      const queue = client()
      const ids = ['a', 'a\0', 'a\0\0', 'b']
      await queue.enqueue(...ids.map((id) => ({ id, delayMs: state === 'delayed' ? HOUR_MS : 0 })))
      const claims = await queue.claim(10, { leaseMs: HOUR_MS })
      if (state === 'dead') for (const each of claims) await queue.bury(each)
      const all = async () => {
        if (state !== 'dead') return listed(queue, state, 1)
        const found: string[] = []
        for (let after: string | undefined; ; ) {
          const page = await queue.driver.deadLetters({ limit: 1, ...(after !== undefined && { after }) })
          found.push(...page.items.map(({ id }) => id))
          if (page.next === undefined) return found
          after = page.next
        }
      }
      expect((await all()).toSorted()).toEqual(ids)
      expect((await queue.stats())[state]).toBe(4)
      expect((await all()).toSorted()).toEqual(ids)
    },
  )
})

describe('settings', () => {
  it.each([
    ['retention', { outcomesMs: Number.MAX_SAFE_INTEGER, maxOutcomes: Number.MAX_SAFE_INTEGER }],
    ['limits', { maxBytes: 1_234_567_890_123_457, maxLength: 9_007_199_254_740_991 }],
    ['ageing', { stepMs: 1.000_000_000_000_001, cap: 7 }],
    ['ageing', { stepMs: 86_400_000.123_456_7, cap: 7 }],
  ])('are stored as they are, so that who asks for the same again is in no conflict: %s %o', async (field, value) => {
    const options = { [field]: value }
    const first = queueOn(backendOn(server.url), options)
    await first.enqueue('x')
    await queueOn(backendOn(server.url), options, first.name).enqueue('y')
    expect((await first.stats()).ready).toBe(2)
  })

  it('N29 that keep no outcomes hold from the next sweep on', async () => {
    const queue = client()
    await queue.enqueue('a', 'b')
    await queue.drain()
    await queue.driver.configure({ retention: { outcomesMs: HOUR_MS, maxOutcomes: 1 } })
    await expect
      .poll(async () => (await queue.swept(() => queue.driver.outcome('a', false))).state, {
        timeout: 3_000,
      })
      .toBe('unknown')
    expect((await queue.driver.outcome('b', false)).state).toBe('done')
  })
})
