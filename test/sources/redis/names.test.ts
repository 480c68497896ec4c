import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { answersKeyOf, channelOf, keysOf, prefixOf, tagOf } from '../../../src/sources/redis/keys.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { allKeys, backendOn, Client, freshServer, inspect, queueOn } from './harness.js'

const server = await startRedis({ cluster: true })
afterAll(() => server.stop())

/** Names that try to get out of their place. */
const TRICKY = [
  ...['{}', '}{', 'a}b{c', '{a}', 'a{b}c', '{', '}', '{{a}}', '%7B', '%7D', '%', '%25', 'a%7Bb%7D'],
  ...['a:b', 'a:q', 'a:a', ':', '::q', 'a:a:session-1', 'a b', ' ', '\t\n', '\0', 'ä', '日本', '😀', '*', 'h[ae]llo?'],
  ...['__proto__', 'constructor', 'x'.repeat(500), 'é'.repeat(250), '"\'\\', 'millrace:{a}'],
]

const trickyName = fc.oneof(
  fc.constantFrom(...TRICKY),
  fc.array(fc.constantFrom('{', '}', '%', ':', 'a', 'b', '7', 'B', 'D', '2', '5'), { minLength: 1 }).map((parts) => {
    return parts.join('')
  }),
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }),
)
const keyPrefix = fc.constantFrom('', 'app:', 'a{b', '}x{')

interface Place {
  readonly keyPrefix: string
  readonly hashTag: string | undefined
  readonly queue: string
}

const place: fc.Arbitrary<Place> = fc.record({
  keyPrefix,
  hashTag: fc.option(trickyName, { nil: undefined }),
  queue: trickyName,
})

/** The name of a session is made by this library. */
const SESSION = '0190c8a4-7a3b-7000-8000-000000000000'

function namesAt({ queue, ...space }: Place): string[] {
  const prefix = prefixOf(space, queue)
  return [...keysOf(prefix), answersKeyOf(prefix, SESSION), channelOf(prefix)]
}

describe('the names of keys', () => {
  it('R3 are never shared by two different names, whatever they look like', () => {
    fc.assert(
      fc.property(place, place, (one, other) => {
        const same = one.queue === other.queue && one.hashTag === other.hashTag
        fc.pre(one.keyPrefix === other.keyPrefix && !same)
        const names = new Set(namesAt(one))
        expect(namesAt(other).filter((name) => names.has(name))).toEqual([])
      }),
      { numRuns: 3_000 },
    )
  })

  it('R3 are in one slot, which is that of the tag, as the server reckons it', async () => {
    const redis = inspect(server)
    const places = fc.sample(place, 300)
    const slotsOf = (keys: readonly string[]) => Promise.all(keys.map((key) => redis.cluster('KEYSLOT', key)))
    for (const each of places) {
      const names = namesAt(each)
      const [tagSlot, ...slots] = await slotsOf([`{${tagOf(names[0] as string)}}`, ...names])
      expect([each, [...new Set(slots)]]).toEqual([each, [tagSlot]])
    }
  })

  it('R3 share a slot where queues share a hash tag', () => {
    fc.assert(
      fc.property(place, trickyName, (one, queue) => {
        fc.pre(one.hashTag !== undefined)
        expect(tagOf(prefixOf(one, queue))).toBe(tagOf(prefixOf(one, one.queue)))
      }),
    )
  })
})

describe('queues of any name', () => {
  it('R3 keep their messages apart, and wake their own consumers', async () => {
    const { url } = await freshServer()
    const producers = backendOn(url)
    const consumers = backendOn(url)
    const received: [string, string | undefined][] = await Promise.all(
      TRICKY.map(async (name) => {
        const waiting = queueOn(consumers, {}, name).receive({ timeoutMs: 4_000 })
        await queueOn(producers, {}, name).enqueue(`for ${name}`)
        const delivery = await waiting
        await delivery?.ack()
        return [name, delivery?.payload]
      }),
    )
    expect(received).toEqual(TRICKY.map((name) => [name, `for ${name}`]))
  })

  it('R3 also where a hash tag is tricky', async () => {
    const { url } = await freshServer()
    for (const hashTag of ['{}', 'a}b{c', '%7B', 'ä b:c']) {
      const client = new Client(backendOn(url, { hashTag }), 'q')
      await client.enqueue(hashTag)
      expect(await client.drain()).toEqual([hashTag])
    }
  })
})

describe('a key prefix', () => {
  const ours = 'app{1}:'

  it.each<[string, (url: string) => string | object]>([
    ['options', (url) => ({ host: '127.0.0.1', port: Number(new URL(url).port), keyPrefix: ours })],
    ['a URL', (url) => `${url}?keyPrefix=${encodeURIComponent(ours)}`],
    ['a URL, with more that must not be overruled', (url) => `${url}?keyPrefix=${ours}&enableOfflineQueue=true`],
  ])('of %s is that of all keys and of the channels', async (_, targetOf) => {
    const server = await freshServer()
    const redis = inspect(server)
    const target = targetOf(server.url) as string
    const waiting = queueOn(backendOn(target), {}, 'q').receive({ timeoutMs: 4_000 })
    await expect.poll(async () => (await redis.pubsub('CHANNELS', '*')) as string[]).toEqual([`${ours}millrace:{q}:h`])
    const queue = queueOn(backendOn(target), {}, 'q')
    const askedAt = performance.now()
    await queue.enqueue('x')
    const delivery = await waiting
    // Found by a hint: the slow poll comes two seconds after the wait began.
    expect(performance.now() - askedAt).toBeLessThan(1_000)
    expect(await allKeys(redis)).toSatisfy((keys: string[]) => {
      return keys.length > 3 && keys.every((key) => key.startsWith(`${ours}millrace:{q}:`))
    })
    await delivery?.ack()
    expect((await queue.stats()).ackedTotal).toBe(1)
  })

  it('of a client is that of all keys and of the channels', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const client = inspect(server, { keyPrefix: ours })
    const queue = queueOn(backendOn(client), {}, 'q')
    const waiting = queue.receive({ timeoutMs: 4_000 })
    await expect.poll(async () => (await redis.pubsub('CHANNELS', '*')) as string[]).toEqual([`${ours}millrace:{q}:h`])
    await queue.enqueue('x')
    expect((await waiting)?.payload).toBe('x')
    expect(await allKeys(redis)).toSatisfy((keys: string[]) => {
      return keys.length > 3 && keys.every((key) => key.startsWith(`${ours}millrace:{q}:`))
    })
  })
})
