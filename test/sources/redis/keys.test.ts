import type { Redis } from 'ioredis'
import { type Backend, Queue } from 'millrace'
import { redisBackend } from 'millrace/redis'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { allKeys, backendOn, Client, freshServer, inspect, queueOn } from './harness.js'
import { tour } from './tour.js'

/** All that the scripts and this library send, and what the client sends to greet a server. */
const COMMANDS = [
  ...['eval', 'evalsha', 'subscribe', 'unsubscribe', 'ping', 'publish', 'time'],
  ...[
    'get',
    'getrange',
    'set',
    'setrange',
    'append',
    'pexpire',
    'hset',
    'hmget',
    'hdel',
    'hscan',
    'hlen',
    'hstrlen',
    'exists',
    'unlink',
  ],
  ...['rpush', 'lpop', 'llen', 'lrange'],
  ...['zadd', 'zrem', 'zrange', 'zrangebyscore', 'zcard', 'zcount', 'zscore', 'zscan', 'zrank', 'zremrangebyrank'],
]

interface Seen {
  readonly name: string
  readonly args: readonly string[]
  readonly isScript: boolean
}

/** What the server carries out from now on. */
async function monitor(redis: Redis): Promise<Seen[]> {
  const seen: Seen[] = []
  const listener = await redis.monitor()
  onTestFinished(() => listener.disconnect())
  listener.on('monitor', (_, [name, ...args]: string[], source: string) => {
    seen.push({ name: String(name).toLowerCase(), args, isScript: source === 'lua' })
  })
  return seen
}

interface Touched {
  readonly name: string
  readonly key: string
  readonly isDeclared: boolean
}

/** Each key or channel that a script names, and whether its caller named it before. */
function touchedIn(seen: readonly Seen[]): Touched[] {
  let declared = new Set<string>()
  return seen.flatMap(({ name, args, isScript }) => {
    if (name === 'evalsha' || name === 'eval') declared = new Set(args.slice(2, 2 + Number(args[1])))
    if (!isScript || name === 'time') return []
    const keys = name === 'unlink' || name === 'exists' ? args : args.slice(0, 1)
    return keys.map((key) => ({ name, key, isDeclared: declared.has(key) }))
  })
}

async function bothOn(backend: Backend): Promise<[Client, Client]> {
  return [new Client(backend, 'one'), new Client(backend, 'two')]
}

async function snapshot(redis: Redis, pattern: string): Promise<[string, string | null][]> {
  const keys = (await redis.keys(pattern)).toSorted()
  return Promise.all(keys.map(async (key) => [key, (await redis.dumpBuffer(key))?.toString('hex') ?? null]))
}

describe('what the scripts touch', () => {
  it('G14 R3 are the keys that were declared for them, and nothing without the prefix', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const seen = await monitor(redis)
    await tour(...(await bothOn(backendOn(server.url))))
    await redis.ping()
    await expect.poll(() => seen.at(-1)?.name).toBe('ping')
    const touched = touchedIn(seen)
    expect(touched.length).toBeGreaterThan(100)
    for (const { name, key, isDeclared } of touched) {
      expect(COMMANDS).toContain(name)
      if (name === 'publish') expect(key).toMatch(/^millrace:\{\w+\}:h$/)
      else expect([name, key, isDeclared]).toEqual([name, key, true])
    }
    for (const key of await allKeys(redis)) expect(key).toMatch(/^millrace:\{(one|two)\}:/)
  })

  it('R15 are never read whole: no command of the scripts grows with the queue', async () => {
    const { SOURCES } = await import('../../../src/sources/redis/source.js')
    for (const source of Object.values(SOURCES)) {
      const commands = [...source.matchAll(/redis\.p?call\('(\w+)'/g)].map(([, name]) => String(name).toLowerCase())
      expect(commands.filter((name) => !COMMANDS.includes(name))).toEqual([])
      expect(source).not.toMatch(/HGETALL|HKEYS|HVALS|SMEMBERS|'KEYS'|'SORT'|'LRANGE', [^,]+, 0, -1/)
      expect(source).not.toMatch(/'ZRANGE', [^,]+, 0, -1/)
    }
  })

  it('leave the keys of others alone, also those that look like ours', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    for (const key of ['q', '{one}:q', 'millrace', 'millrace:{on}:q', 'xmillrace:{one}:q', 'app:millrace:{one}:q'])
      await redis.hset(key, 'format', 7, 'enqueued', 3)
    await redis.zadd('millrace:{one}:r:', 1, 'mine')
    await redis.set('millrace:{one}:a', 'mine')
    const theirs = (await snapshot(redis, '*')).map(([key]) => key)
    const before = await snapshot(redis, '*')
    await tour(...(await bothOn(backendOn(server.url))))
    expect((await snapshot(redis, '*')).filter(([key]) => theirs.includes(key))).toEqual(before)
  })

  it('are as much as a user may touch who has nothing but our keys, channels and commands', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const allowed = COMMANDS.map((name) => `+${name}`)
    await redis.acl('SETUSER', 'u', 'on', '>p', 'resetkeys', 'resetchannels', '~millrace:*', '&millrace:*', ...allowed)
    const target = `redis://u:p@127.0.0.1:${server.port}`
    await tour(...(await bothOn(backendOn(target))))
    const consumer = queueOn(backendOn(target), {}, 'three')
    const waiting = consumer.receive({ timeoutMs: 4_000 })
    await expect.poll(async () => redis.pubsub('CHANNELS', '*')).toEqual(['millrace:{three}:h'])
    const askedAt = performance.now()
    await queueOn(backendOn(target), {}, 'three').enqueue('x')
    expect((await waiting)?.payload).toBe('x')
    expect(performance.now() - askedAt).toBeLessThan(1_000)
    const denied = (await redis.acl('LOG')) as unknown[][]
    // The client asks for INFO to see whether a server is ready, and so do we for its version; both do without.
    expect(denied.map((entry) => String(entry[7])).filter((what) => !/^(info|client)/.test(what))).toEqual([])
    expect(warn.mock.calls.filter(([text]) => !String(text).includes('INFO command fails'))).toEqual([])
  })
})

describe('what stays on the server', () => {
  it('R9 has no expiry, but for the answers to callers', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const [one, two] = await bothOn(backendOn(server.url))
    await tour(one, two)
    await one.enqueue('a', { id: 'b', delayMs: 100_000, ttlMs: 100_000 }, 'c', 'd')
    const [claim] = await one.claim(2)
    if (claim) await one.bury(claim)
    const kinds = new Set<string>()
    for (const key of await allKeys(redis)) {
      const ttl = await redis.pttl(key)
      kinds.add(key.replace(/^millrace:\{\w+\}:/, '').slice(0, 1))
      expect([key, ttl > 0]).toEqual([key, key.includes(':a:')])
      if (key.includes(':a:')) expect(ttl).toBeLessThanOrEqual(7_200_000)
    }
    expect([...kinds].toSorted()).toEqual(['a', 'c', 'd', 'e', 'm', 'p', 'q', 'r', 't', 'x'])
  })

  it('N1 is the totals and the outcomes when all is done, purged and closed', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const backend = redisBackend(server.url)
    const queue = new Queue<string>('q', { backend, retention: { outcomesMs: 3_600_000, maxOutcomes: 2 } })
    for (const payload of ['a', 'b', 'c', 'd', 'e', 'f']) await queue.enqueue(payload, { id: payload })
    await queue.enqueue('later', { delayMs: 100_000, ttlMs: 100_000 })
    for (let index = 0; index < 3; index += 1) await (await queue.tryReceive())?.ack()
    await (await queue.tryReceive())?.deadLetter('bad')
    await queue.tryReceive()
    await queue.purge({ state: ['ready', 'delayed', 'claimed', 'dead'] })
    await backend.close()
    const keys = await allKeys(redis)
    expect(keys.filter((key) => !key.includes(':a:'))).toEqual(['millrace:{q}:e', 'millrace:{q}:m', 'millrace:{q}:q'])
    expect(await redis.hkeys('millrace:{q}:m')).toHaveLength(2)
    for (const key of keys.filter((each) => each.includes(':a:'))) expect(await redis.pttl(key)).toBeGreaterThan(0)
  })
})
