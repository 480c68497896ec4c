import { afterAll, describe, expect, it } from 'vitest'
import { startRedis } from '../../support/servers/redis-server.js'
import { until } from '../../support/wait.js'
import { backendOn, Client, changeState, inspect } from './harness.js'

const server = await startRedis()
afterAll(() => server.stop())

const HOUR_MS = 3_600_000

function client(): Client {
  return new Client(backendOn(server.url))
}

describe('what a record holds', () => {
  it.each([
    ['a long name of a consumer', { consumer: 'c'.repeat(300) }],
    ['the longest one', { consumer: 'é'.repeat(256) }],
    ['one with zero bytes', { consumer: 'a\0b' }],
  ])('comes back as it was: %s', async (_, { consumer }) => {
    const queue = client()
    const headers = { 'x\0y': 'ä\0', long: 'h'.repeat(70_000) }
    await queue.enqueue({ id: 'a', key: 'k'.repeat(512), headers, priority: 65_535 })
    const claim = await queue.one({ consumer, leaseMs: HOUR_MS })
    expect(claim).toMatchObject({
      id: 'a',
      key: 'k'.repeat(512),
      headers,
      priority: 65_535,
      attempt: 1,
      deliveryCount: 1,
    })
    const { items } = await queue.driver.list('claimed', { limit: 1 })
    expect(items).toMatchObject([{ id: 'a', consumer, key: 'k'.repeat(512), headers, priority: 65_535 }])
    await queue.settle({ id: 'a', token: claim.token, kind: 'requeue', delayMs: 0, countAttempt: true, reason: 'r\0' })
    const again = await queue.one({ consumer })
    expect(again).toMatchObject({ attempt: 2, deliveryCount: 2, key: 'k'.repeat(512), headers })
    await queue.bury(again)
    const dead = await queue.driver.deadLetters({ limit: 1 })
    expect(dead.items).toMatchObject([{ id: 'a', errors: ['r\0', 'bad'], attempts: 2, headers }])
  })

  it('N31 keeps results and progress of any bytes', async () => {
    const queue = client()
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index)
    await queue.enqueue({ id: 'a', bytes }, 'b')
    const claim = await queue.one()
    expect(Buffer.compare(claim.bytes, bytes)).toBe(0)
    await queue.driver.renew([{ id: 'a', token: claim.token, leaseMs: HOUR_MS, progress: bytes }])
    const [shown] = (await queue.driver.list('claimed', { limit: 1 })).items
    expect(Buffer.compare(shown?.progress as Uint8Array, bytes)).toBe(0)
    await queue.settle({ id: 'a', token: claim.token, kind: 'ack', result: bytes })
    const outcome = await queue.driver.outcome('a', false)
    expect(outcome.state === 'done' && Buffer.compare(outcome.result as Uint8Array, bytes)).toBe(0)
  })
})

describe('outcomes', () => {
  it('that are too old are forgotten while the queue is never idle', async () => {
    const queue = client()
    const redis = inspect(server)
    await queue.driver.configure({ retention: { outcomesMs: 50, maxOutcomes: 1_000_000 } })
    await queue.enqueue(...Array.from({ length: 100 }, (_, index) => `first${index}`))
    let count = 0
    const endsAt = performance.now() + 2_000
    while (performance.now() < endsAt) {
      count += 1
      await queue.enqueue(`m${count}`)
      await queue.ack(await queue.one())
    }
    expect(count).toBeGreaterThan(300)
    // A hundred are ready; what ended in the last moments may be there, but not all of two seconds.
    expect(await redis.hlen(`millrace:{${queue.name}}:m`)).toBeLessThan(100 + count / 2)
  })

  it.each([0, 2])('N29 are %i where no more are wanted, though more end at once', async (maxOutcomes) => {
    const queue = client()
    const redis = inspect(server)
    await queue.driver.configure({ retention: { outcomesMs: HOUR_MS, maxOutcomes } })
    const ids = ['a', 'b', 'c', 'd', 'e']
    let kept: string[] = []
    for (let round = 0; round < 5; round += 1) {
      expect(await queue.enqueue(...ids)).toEqual(ids.map((id) => (kept.includes(id) ? 'duplicate' : 'enqueued')))
      const claims = await queue.claim(5)
      await queue.ack(...claims)
      kept = [...kept, ...claims.map(({ id }) => id)].toReversed().slice(0, maxOutcomes).toReversed()
      expect(await redis.hlen(`millrace:{${queue.name}}:m`)).toBe(maxOutcomes)
      expect(await redis.llen(`millrace:{${queue.name}}:e`)).toBe(maxOutcomes)
    }
  })

  it('N29 of an id that was used again and purged in between are kept as long as those of others', async () => {
    const queue = client()
    const redis = inspect(server)
    await queue.driver.configure({ retention: { outcomesMs: 1, maxOutcomes: 1_000 } })
    await queue.enqueue('a')
    await queue.drain()
    await until('the first outcome has had its time', async () => {
      return (await queue.driver.outcome('a', false)).state === 'unknown'
    })
    expect(await queue.enqueue('a')).toEqual(['enqueued'])
    await queue.driver.purge(['ready'], 10, queue.token())
    expect(await queue.enqueue('a')).toEqual(['enqueued'])
    await queue.driver.configure({ retention: { outcomesMs: HOUR_MS, maxOutcomes: 1_000 } })
    await queue.drain()
    expect((await queue.driver.outcome('a', false)).state).toBe('done')
    await changeState(redis, queue.name, { tidyAt: 0 })
    await queue.driver.sweep(10)
    expect((await queue.driver.outcome('a', false)).state).toBe('done')
    expect(await queue.enqueue('a')).toEqual(['duplicate'])
  })
})

describe('an audit', () => {
  it('B10 that puts back a delayed message whose time has come sees to it that it is delivered', async () => {
    const queue = client()
    const redis = inspect(server)
    const key = (suffix: string) => `millrace:{${queue.name}}:${suffix}`
    // Nothing to be found yet: the next audit is a second away.
    await queue.driver.sweep(10)
    await queue.enqueue({ id: 'a', delayMs: 30 })
    await redis.del(key('d'))
    const dueAt = Date.now() + 30
    await until('its time has come', async () => {
      const [seconds, microseconds] = (await redis.time()).map(Number) as [number, number]
      return seconds * 1_000 + microseconds / 1_000 > dueAt
    })
    expect((await queue.driver.sweep(10)).moved).toBe(0)
    await until('it is delivered', async () => (await queue.claim(1)).length === 1)
  })
})
