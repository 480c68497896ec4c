import { type Queue, StoreVersionError } from 'millrace'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { until } from '../../support/wait.js'
import { Rig } from './rig.js'

const NAME = 'q'
const META = `millrace/${NAME}/w/meta`
/** What begins with another digit than this version's is of a newer one. */
const NEWER = '9{}'

let server: EtcdServer
let rig: Rig

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

beforeEach(async () => {
  rig = new Rig(onTestFinished)
  await server.gateway.deletePrefix()
})

const opened = (options: { maxDeliveries?: number } = {}) => rig.queue(rig.backend(server.url), options, NAME)

/** All that is stored, but sessions and what belongs to a lease: those say who is there. */
async function stored(): Promise<Record<string, string>> {
  const all = (await server.gateway.list()).filter(({ key }) => !/\/(s|w\/live)\//.test(key))
  return Object.fromEntries(all.map(({ key, value, modRevision }) => [key, `${modRevision} ${value}`]))
}

const CALLS: Readonly<Record<string, (queue: Queue<string>) => Promise<unknown>>> = {
  enqueue: (queue) => queue.enqueue('x'),
  enqueueAll: (queue) => queue.enqueueAll([{ payload: 'x' }, { payload: 'y' }]),
  tryReceive: (queue) => queue.tryReceive(),
  tryTake: (queue) => queue.tryTake(),
  purge: (queue) => queue.purge(),
  'purge of what is claimed': (queue) => queue.purge({ state: 'claimed' }),
  'purge of dead letters': (queue) => queue.deadLetters.purgeAll(),
  pause: (queue) => queue.pause(),
  resume: (queue) => queue.resume(),
  configure: (queue) => queue.configure({ limits: { maxLength: 1 } }),
  cancel: (queue) => queue.cancel('a'),
  stats: (queue) => queue.stats(),
}

describe('a queue that a newer version has written', () => {
  it.each(Object.keys(CALLS))('N88 is refused by %s, and nothing is touched', async (name) => {
    const queue = opened()
    await queue.enqueueAll([{ payload: 'a', id: 'a' }, { payload: 'b' }])
    await (await queue.tryReceive())?.deadLetter('bad')
    await queue.close()
    await server.gateway.put(META, NEWER)
    const before = await stored()
    const newcomer = opened()
    await expect(CALLS[name]?.(newcomer)).rejects.toMatchObject({
      code: 'ERR_MILLRACE_STORE_VERSION',
      version: 9,
      supported: 1,
    })
    await newcomer.close()
    expect(await stored()).toEqual(before)
  })

  it.each(Object.keys(CALLS))('N88 is refused by %s of who was there before, and nothing is touched', async (name) => {
    const queue = opened()
    await queue.enqueueAll([{ payload: 'a', id: 'a' }, { payload: 'b' }])
    await (await queue.tryReceive())?.deadLetter('bad')
    await server.gateway.put(META, NEWER)
    const before = await stored()
    await expect(CALLS[name]?.(queue)).rejects.toThrow(StoreVersionError)
    expect(await stored()).toEqual(before)
  })

  it('N88 is not written to by a forward from another queue, whose claim stays live', async () => {
    const backend = rig.backend(server.url)
    const [from, to] = [rig.queue<string>(backend, {}, 'from'), rig.queue<string>(backend, {}, NAME)]
    await server.gateway.put(META, NEWER)
    await from.enqueue('x')
    const delivery = await from.tryReceive()
    await expect(delivery?.forward(to, 'y')).rejects.toThrow(StoreVersionError)
    expect(Object.keys(await stored()).filter((key) => key.startsWith(`millrace/${NAME}/`))).toEqual([META])
    expect(await delivery?.ack()).toBe('settled')
  })

  it('N88 is told of to a source', async () => {
    await server.gateway.put(META, NEWER)
    const source = opened().source()
    const events = eventsOf(source)
    expect(await new Promise((resolve) => source.subscribe({ error: resolve }))).toBeInstanceOf(StoreVersionError)
    expect(events.map(({ type }) => type)).not.toContain('claimed')
    expect(Object.keys(await stored())).toEqual([META])
  })

  it('N88 is told of to a source that waits when the newer one comes', async () => {
    const source = opened().source()
    const ended = new Promise((resolve) => source.subscribe({ error: resolve }))
    await until('it listens', async () => (await server.gateway.watchers()) > 0)
    await server.gateway.put(META, NEWER)
    expect(await ended).toBeInstanceOf(StoreVersionError)
  })
})

describe('what somebody deletes', () => {
  it.each(['w/meta', 'w/arrivals', 'w/news', 's/'])(
    'of %j is made again by who works with it, as it was',
    async (name) => {
      const settings = { maxDeliveries: 2 }
      const [queue, other] = [opened(settings), opened(settings)]
      await queue.enqueueAll(['a', 'b'].map((id) => ({ payload: id, id })))
      await (await queue.receive())?.ack()
      await other.enqueue('c')
      await server.gateway.deletePrefix(`millrace/${NAME}/${name}`)
      await Promise.all([queue.enqueue('d'), other.enqueue('e')])
      await queue.configure({ limits: { maxLength: 10 } })
      await queue.pause()
      await other.resume()
      const seen: (string | undefined)[] = []
      for (const each of [queue, other, queue, other]) seen.push(await each.tryTake())
      expect(seen.slice(0, 2)).toEqual(['b', 'c'])
      expect(seen.slice(2).sort()).toEqual(['d', 'e'])
      await queue.enqueue('poison')
      for (const each of [queue, other]) await (await each.receive())?.requeue()
      expect((await queue.deadLetters[Symbol.asyncIterator]().next()).value).toMatchObject({ attempts: 2 })
    },
  )
})

describe('what is urgent', () => {
  it('is not overlooked where somebody has deleted what tells of priorities', async () => {
    const other = opened()
    await other.enqueueAll([1, 2, 3].map((n) => ({ payload: String(n), priority: 5 })))
    expect(await other.tryTake()).toBe('1')
    await server.gateway.delete(`millrace/${NAME}/w/arrivals`)
    const producer = opened()
    await producer.enqueue('urgent', { priority: 1 })
    await producer.enqueue('urgent too', { priority: 1 })
    expect([await other.tryTake(), await other.tryTake(), await other.tryTake()]).toEqual(['urgent', 'urgent too', '2'])
  })
})

describe('what cannot be read', () => {
  const NOTHING = 'this is no record'
  const calls: readonly (readonly [string, (queue: Queue<string>) => Promise<unknown>])[] = [
    ['stats', (queue) => queue.stats()],
    [
      'peek',
      async (queue) => {
        for await (const { id } of queue.peek({ state: 'ready' })) expect(['a', 'b']).toContain(id)
      },
    ],
    ['purge', (queue) => queue.purge()],
    ['a change of ageing', (queue) => queue.configure({ ageing: { stepMs: 1_000 } })],
  ]

  it.each(calls)('at a place among the ready ones does not keep %s from the others', async (_, call) => {
    const queue = opened()
    await queue.enqueueAll([
      { payload: 'a', id: 'a' },
      { payload: 'b', id: 'b' },
    ])
    const [place] = (await server.gateway.keys(`millrace/${NAME}/r/`)) as [string]
    await server.gateway.put(`${place}0`, NOTHING)
    await call(queue)
    expect(await (await queue.tryReceive())?.ack()).toBe(call === calls[2]?.[1] ? undefined : 'settled')
    expect(await server.gateway.keys(`${place}0`)).toEqual([])
  })

  it('at a place that is due does not hold up what is ready, nor what is due after it', async () => {
    const queue = opened()
    await queue.enqueue('late', { delayMs: 1 })
    const [place] = (await server.gateway.keys(`millrace/${NAME}/d/`)) as [string]
    // Of the first millisecond that there was.
    await server.gateway.put(
      place.replace(/[^/]+$/, (name) => `000000000001${name.slice(12)}`),
      NOTHING,
    )
    await queue.enqueue('now')
    expect([await queue.tryTake(), await queue.tryTake()].sort()).toEqual(['late', 'now'])
    expect(await server.gateway.keys(`millrace/${NAME}/d/`)).toEqual([])
  })

  it.each(['w/arrivals', 'w/news', 'e/somebody/1'])('of %j does not end a process that watches it', async (name) => {
    const queue = opened()
    await queue.enqueue('x', { id: 'm', delayMs: 500 })
    const source = queue.source({ graceMs: 0 })
    const waiting = source[Symbol.asyncIterator]().next()
    const outcome = queue.outcome('m', { timeoutMs: 10_000 })
    await until('they listen', async () => (await server.gateway.watchers()) > 1)
    const key = `millrace/${NAME}/${name}`
    const [before] = await server.gateway.list(key)
    await server.gateway.put(key, 'this is no record')
    await (before ? server.gateway.put(key, before.value) : server.gateway.delete(key))
    const { value } = await waiting
    expect(await value?.ack('fine')).toBe('settled')
    expect(await outcome).toEqual({ state: 'done', result: 'fine' })
    await source.stop()
  })
})
