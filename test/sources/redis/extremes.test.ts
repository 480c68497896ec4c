import { Queue } from 'millrace'
import { afterAll, describe, expect, it } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { backendOn, Client, inspect } from './harness.js'

const server = await startRedis()
afterAll(() => server.stop())

const HOUR_MS = 3_600_000

function client(name?: string): Client {
  return new Client(backendOn(server.url), name)
}

describe('the longest times', () => {
  it('of a lease keep no later request from being answered', async () => {
    const queue = client()
    await queue.enqueue('a', 'b')
    const claim = await queue.one({ leaseMs: 1e18 })
    expect(await client(queue.name).enqueue('c')).toEqual(['enqueued'])
    expect(await queue.ack(claim)).toEqual(['acked'])
    expect(await queue.drain()).toEqual(['b', 'c'])
  })

  it.each([2 ** 45, Number.MAX_SAFE_INTEGER, 1e300])(
    'F2 of a delay, %d, leave a message that can be listed and purged',
    async (delayMs) => {
      const queue = client()
      await queue.enqueue({ id: 'a', delayMs })
      expect((await queue.driver.list('delayed', { limit: 5 })).items).toMatchObject([{ id: 'a', state: 'delayed' }])
      expect(await queue.driver.purge(['delayed'], 5, queue.token())).toBe(1)
      expect(await queue.driver.outcome('a', false)).toEqual({ state: 'unknown' })
      expect(await queue.enqueue('a')).toEqual(['enqueued'])
      expect(conserved(await queue.stats())).toBe(true)
    },
  )
})

describe('what waits', () => {
  it('N6 is told of a message that comes back in the call in which it saw the queue empty', async () => {
    const backend = backendOn(server.url)
    const [one, other] = [new Client(backend, 'told'), new Client(backend, 'told')]
    const hints: string[] = []
    const subscription = client('told')
      .driver.arrivals()
      .subscribe(({ kind }) => void hints.push(kind))
    await expect.poll(() => hints).toEqual(['up'])
    await one.enqueue('a')
    const claim = await one.one()
    await one.enqueue('b')
    await expect.poll(() => hints.filter((kind) => kind === 'ready')).toHaveLength(2)
    // Both are steps of one call, in this order.
    const [claims, released] = await Promise.all([
      other.claim(10),
      one.settle({ kind: 'release', id: claim.id, token: claim.token, delivered: true }),
    ])
    expect([claims.map(({ id }) => id), released]).toEqual([['b'], ['ready']])
    await expect.poll(() => hints.filter((kind) => kind === 'ready')).toHaveLength(3)
    subscription.unsubscribe()
  })

  it('N71 is told of a cancel that came before its claim was asked for again', async () => {
    const queue = client()
    await queue.enqueue('a')
    const request = { token: queue.token(), max: 1, leaseMs: HOUR_MS, take: false, consumer: 'c' }
    await queue.driver.claim(request)
    const other = client(queue.name)
    expect(await other.driver.cancel('a', other.token())).toBe('cancelling')
    const again = await queue.driver.claim(request)
    expect(again.claims).toMatchObject([{ id: 'a', cancelRequested: true }])
  })
})

describe('ageing that is turned off while places are still reckoned', () => {
  it('leaves nothing of the order of ages behind', async () => {
    const queue = client()
    const redis = inspect(server)
    const limits = { maxLength: 2, maxBytes: null, maxPayloadBytes: 100, whenFull: 'dropOldest' } as const
    await queue.enqueue(...Array.from({ length: 3_000 }, (_, index) => `m${index}`))
    await Promise.all([
      queue.driver.configure({ ageing: { stepMs: 5, cap: 9 } }),
      queue.driver.configure({ ageing: null }),
    ])
    expect(await queue.drain(500)).toHaveLength(3_000)
    expect(await redis.exists(`millrace:{${queue.name}}:o`)).toBe(0)
    await queue.driver.configure({ ageing: { stepMs: 5, cap: 9 }, limits })
    await queue.enqueue('a', 'b')
    await queue.enqueue('c', 'd')
    expect(await queue.stats()).toMatchObject({ ready: 2, droppedTotal: 2 })
    expect(conserved(await queue.stats())).toBe(true)
  })
})

describe('an id whose record was deleted by hand, and that is enqueued anew', () => {
  it('is claimed once, and is gone when it is acked', async () => {
    const queue = client()
    await queue.enqueue('a')
    await inspect(server).hdel(`millrace:{${queue.name}}:m`, 'a')
    await queue.enqueue('a')
    const claims = await queue.claim(5)
    expect(claims.map(({ id }) => id)).toEqual(['a'])
    expect(await queue.ack(...claims)).toEqual(['acked'])
    expect(await queue.stats()).toMatchObject({ ready: 0, claimed: 0, ackedTotal: 1 })
    expect(conserved(await queue.stats())).toBe(true)
  })

  it('is no record that can be read: the others come all the same', async () => {
    const queue = client()
    await queue.enqueue('a', 'b')
    await inspect(server).hset(`millrace:{${queue.name}}:m`, 'a', 'garbage')
    expect(await queue.drain()).toEqual(['b'])
    expect(await queue.stats()).toMatchObject({ ready: 0, droppedTotal: 1 })
  })
})

describe('another database', () => {
  it('is used when the server has it, and refused when it has not', async () => {
    const there = new Queue<string>('elsewhere', { backend: backendOn(`${server.url}/3`) })
    await there.enqueue('x')
    await there.close()
    expect(await inspect(server, { db: 3 }).exists('millrace:{elsewhere}:m')).toBe(1)
    const refused = new Client(backendOn(`${server.url}/99`))
    await expect(refused.enqueue('x')).rejects.toMatchObject({ code: 'ERR_MILLRACE_BACKEND' })
    expect(await inspect(server).exists(`millrace:{${refused.name}}:m`)).toBe(0)
  })
})
