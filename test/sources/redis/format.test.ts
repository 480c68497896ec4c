import { StoreVersionError } from 'millrace'
import { afterAll, describe, expect, it } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { backendOn, Client, failureOf, freshServer, inspect, queueOn } from './harness.js'
import { VERBS } from './tour.js'

const server = await startRedis()
afterAll(() => server.stop())

/** A queue with something in every state, as a newer version of this library would have left it. */
async function newerQueue(url: string, redis: ReturnType<typeof inspect>): Promise<Client> {
  const queue = new Client(backendOn(url))
  await queue.enqueue('a', 'b', 'c', { id: 'later', delayMs: 1, ttlMs: 2 })
  const [, b] = await queue.claim(2, { leaseMs: 1 })
  if (b) await queue.bury(b)
  expect(await redis.hset(`millrace:{${queue.name}}:q`, 'format', 999)).toBe(0)
  return queue
}

async function dumped(redis: ReturnType<typeof inspect>): Promise<unknown[]> {
  const keys = (await redis.keys('*')).toSorted()
  return Promise.all(keys.map(async (key) => [key, await redis.dumpBuffer(key), await redis.pttl(key)]))
}

describe('a queue that a newer version has written', () => {
  it.each(Object.keys(VERBS))('N88 is refused by %s, and nothing is touched', async (verb) => {
    const redis = inspect(server)
    await redis.flushall()
    const queue = await newerQueue(server.url, redis)
    // An answer of before has an expiry, which runs.
    for (const key of await redis.keys('*:a:*')) await redis.persist(key)
    const before = await dumped(redis)
    const error = await failureOf(() => VERBS[verb]?.(queue, queue.token()))
    expect(error).toBeInstanceOf(StoreVersionError)
    expect(error).toMatchObject({ code: 'ERR_MILLRACE_STORE_VERSION', version: 999, supported: 1 })
    expect(await dumped(redis)).toEqual(before)
  })

  it('N88 is not written to by a forward from another queue, whose claim stays live', async () => {
    const redis = inspect(server)
    await redis.flushall()
    const newer = await newerQueue(server.url, redis)
    const from = new Client(backendOn(server.url))
    await from.enqueue('x')
    const { id, token } = await from.one()
    for (const key of await redis.keys('*:a:*')) await redis.persist(key)
    const before = (await dumped(redis)).filter((each) => String((each as [string])[0]).includes(`{${newer.name}}`))
    const message = { id: 'carried', bytes: Buffer.from('1'), priority: 0, delayMs: 0 }
    const command = { kind: 'ack', id, token, carry: [{ queue: newer.name, message }] } as const
    const [result] = await from.driver.settle([command], from.token())
    expect(result?.state).toBe('refused')
    expect(result?.error).toBeInstanceOf(StoreVersionError)
    const after = (await dumped(redis)).filter((each) => String((each as [string])[0]).includes(`{${newer.name}}`))
    expect(after).toEqual(before)
    expect(await from.ack({ id, token })).toEqual(['acked'])
  })

  it('N88 is told of to a source, and to every call of a queue', async () => {
    const fresh = await freshServer()
    const redis = inspect(fresh)
    await redis.hset('millrace:{q}:q', 'format', 999)
    const queue = queueOn(backendOn(fresh.url), {}, 'q')
    for (const act of [() => queue.enqueue('a'), () => queue.stats(), () => queue.tryReceive(), () => queue.purge()])
      expect(await failureOf(act)).toBeInstanceOf(StoreVersionError)
    const source = queue.source()
    const events = eventsOf(source)
    const error = await new Promise((resolve) => source.subscribe({ error: resolve }))
    expect(error).toBeInstanceOf(StoreVersionError)
    expect(events.map(({ type }) => type)).not.toContain('claimed')
    expect(await redis.keys('*')).toEqual(['millrace:{q}:q'])
    expect(await redis.hgetall('millrace:{q}:q')).toEqual({ format: '999' })
  })
})
