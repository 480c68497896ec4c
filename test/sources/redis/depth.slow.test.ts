import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import type { Ageing, Paged } from '../../../src/driver.js'
import { conserved } from '../../../src/testing/conserved.js'
import { startProxy } from '../../support/servers/proxy.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { pause, until } from '../../support/wait.js'
import { backendOn, Client, changeState, freshServer, inspect, queueOn, stateOf } from './harness.js'

const server = await startRedis()
afterAll(() => server.stop())

const HOUR_MS = 3_600_000
/** No call may keep the server from others for longer. */
const SLOW_MICROS = 20_000

function names(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `m${index}`)
}

/** Enqueues in batches, so that there are several times of arrival. */
async function fill(
  queue: Client,
  ids: readonly string[],
  priorityOf: (index: number) => number = () => 0,
): Promise<void> {
  for (let from = 0; from < ids.length; from += 1_000) {
    const batch = ids.slice(from, from + 1_000)
    await queue.enqueue(...batch.map((id, index) => ({ id, priority: priorityOf(from + index) })))
  }
}

async function pages<T>(page: (after?: string) => PromiseLike<Paged<T>>, between: () => unknown): Promise<T[]> {
  const found: T[] = []
  for (let after: string | undefined; ; ) {
    const { items, next } = await page(after)
    found.push(...items)
    if (next === undefined) return found
    after = next
    await between()
  }
}

describe('a listing of five thousand', () => {
  it('N46 is complete, in order and without repeats', async () => {
    const queue = new Client(backendOn(server.url))
    const ids = names(5_000)
    await fill(queue, ids)
    const shown: string[] = []
    const reader = queueOn(backendOn(server.url), {}, queue.name)
    for await (const { id } of reader.peek({ state: 'ready' })) shown.push(id)
    expect(shown).toEqual(ids)
  })

  it('N46 misses and repeats nothing that stays, while others are taken out and come', async () => {
    const queue = new Client(backendOn(server.url))
    const ids = names(5_000)
    await fill(queue, ids)
    const gone = new Set<string>()
    const shown = await pages(
      (after) => queue.driver.list('ready', { limit: 97, ...(after !== undefined && { after }) }),
      async () => {
        const claims = await queue.claim(30)
        for (const { id } of claims) gone.add(id)
        await queue.ack(...claims)
        // Also the very one that the cursor names, and one that is still to come.
        for (const id of [`m${gone.size * 3}`, `m${4_999 - gone.size}`])
          if ((await queue.driver.cancel(id, queue.token())) === 'cancelled') gone.add(id)
      },
    )
    const listed = shown.map(({ id }) => id)
    expect(new Set(listed).size).toBe(listed.length)
    expect(listed).toEqual(ids.filter((id) => listed.includes(id)))
    const stayed = ids.filter((id) => !gone.has(id))
    const seen = new Set(listed)
    expect(stayed.filter((id) => !seen.has(id))).toEqual([])
    expect(gone.size).toBeGreaterThan(1_000)
  })

  it('N46 of dead letters likewise', async () => {
    const queue = new Client(backendOn(server.url))
    const ids = names(5_000)
    await fill(queue, ids)
    for (let left = 5_000; left > 0; left -= 500) await queue.bury(...(await queue.claim(500)))
    const all = await pages(
      (after) => queue.driver.deadLetters({ limit: 499, ...(after !== undefined && { after }) }),
      () => undefined,
    )
    expect(all.map(({ id }) => id)).toEqual(ids)
    const gone = new Set<string>()
    let page = 0
    const shown = await pages(
      (after) => queue.driver.deadLetters({ limit: 100, ...(after !== undefined && { after }) }),
      async () => {
        page += 1
        const chosen = [`m${100 * page - 1}`, `m${100 * page}`, `m${4_999 - page}`, `m${page}`]
        const purged = await queue.driver.purgeDead(chosen, queue.token())
        for (const [index, id] of chosen.entries()) if (purged[index]) gone.add(id)
      },
    )
    const seen = shown.map(({ id }) => id)
    expect(new Set(seen).size).toBe(seen.length)
    const known = new Set(seen)
    expect(ids.filter((id) => !gone.has(id) && !known.has(id))).toEqual([])
    expect(seen).toEqual(ids.filter((id) => known.has(id)))
  })
})

/** What is ready, in the order that ageing wants, from what is shown of it. */
async function expectOrder(queue: Client, ageing: Ageing | null): Promise<string[]> {
  const shown = await pages(
    (after) => queue.driver.list('ready', { limit: 1_000, ...(after !== undefined && { after }) }),
    () => undefined,
  )
  const placeOf = ({ priority, enqueuedAt }: (typeof shown)[number]) =>
    ageing === null ? priority : enqueuedAt + priority * ageing.stepMs
  const numberOf = ({ id }: (typeof shown)[number]) => Number(id.slice(1))
  const expected = shown.toSorted((one, other) => placeOf(one) - placeOf(other) || numberOf(one) - numberOf(other))
  expect(shown.map(({ id }) => id)).toEqual(expected.map(({ id }) => id))
  return shown.map(({ id }) => id)
}

describe('a change of ageing on five thousand that are ready', () => {
  const AGEING = { stepMs: 3, cap: 65_535 }

  it('N59 loses and doubles nothing while consumers claim, and the order is right afterwards', async () => {
    const queue = new Client(backendOn(server.url))
    const redis = inspect(server)
    const rivals = [1, 2, 3].map(() => new Client(backendOn(server.url), queue.name))
    const ids = names(5_000)
    await fill(queue, ids, (index) => index % 5)
    const changing = { on: true }
    const taken: string[] = []
    const claiming = rivals.map(async (rival) => {
      while (changing.on) {
        const claims = await rival.claim(3)
        taken.push(...claims.map(({ id }) => id))
        await rival.ack(...claims)
      }
    })
    for (const ageing of [AGEING, null, { stepMs: HOUR_MS, cap: 2 }, AGEING]) await queue.driver.configure({ ageing })
    await until('the last change is done', async () => (await stateOf(redis, queue.name)).ranking === 0)
    changing.on = false
    await Promise.all(claiming)
    expect(taken.length).toBeGreaterThan(10)
    const left = await expectOrder(queue, AGEING)
    expect([...left, ...taken].toSorted()).toEqual(ids.toSorted())
    expect(conserved(await queue.stats())).toBe(true)
    expect(await queue.drain(500)).toEqual(left)
    expect(await redis.exists(...['r', 'o', 'p', 'c'].map((each) => `millrace:{${queue.name}}:${each}`))).toBe(0)
  })

  it.each<[string, Ageing | null]>([
    ['on', AGEING],
    ['off', null],
  ])('N59 that dies after its first step is finished by whatever is called later: %s', async (_, ageing) => {
    const queue = new Client(backendOn(server.url))
    const redis = inspect(server)
    const prefix = `millrace:{${queue.name}}`
    await queue.driver.configure({ ageing: ageing === null ? AGEING : null })
    await fill(queue, names(5_000), (index) => index % 5)
    const proxy = await startProxy(server.port)
    onTestFinished(() => proxy.stop())
    const dying = new Client(backendOn(proxy.url), queue.name)
    proxy.onCommand(({ args }) => {
      if (!args.some((each) => String(each) === 'rank')) return
      void proxy.refuse()
      proxy.resetAll()
    })
    await dying.driver.configure({ ageing })
    const ranking = async () => (await stateOf(redis, queue.name)).ranking
    expect(await ranking()).toBeGreaterThan(0)
    const claims: string[] = []
    await until('the rest is done', async () => {
      claims.push(...(await queue.claim(1)).map(({ id }) => id))
      return (await ranking()) === 0
    })
    expect(claims.length).toBeLessThan(30)
    expect(new Set(claims).size).toBe(claims.length)
    expect((await expectOrder(queue, ageing)).length).toBe(5_000 - claims.length)
    expect(await redis.zcard(`${prefix}:o`)).toBe(ageing === null ? 0 : 5_000 - claims.length)
  })
})

describe('a hundred thousand', () => {
  it('R15 that are claimed lapse in bounded steps, and none blocks the server for long', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const queue = new Client(backendOn(server.url), 'q')
    const count = 100_000
    for (let from = 0; from < count; from += 10_000)
      await queue.enqueue(...Array.from({ length: 10_000 }, (_, index) => `m${from + index}`))
    for (let from = 0; from < count; from += 1_000)
      expect(await queue.claim(1_000, { leaseMs: HOUR_MS })).toHaveLength(1_000)
    expect(await queue.stats()).toMatchObject({ claimed: count, ready: 0 })
    // All leases are over at once.
    const entries = await redis.zrange('millrace:{q}:c', 0, -1)
    for (let from = 0; from < count; from += 1_000)
      await redis.zadd('millrace:{q}:c', ...entries.slice(from, from + 1_000).flatMap((id) => [1, id]))
    await changeState(redis, 'q', { nextAt: 0 })
    await redis.config('SET', 'slowlog-log-slower-than', String(SLOW_MICROS))
    await redis.slowlog('RESET')
    await redis.config('RESETSTAT')
    let sweeps = 0
    for (let moved = 1; moved > 0; sweeps += 1) {
      moved = (await queue.driver.sweep(256)).moved
      expect(moved).toBeLessThanOrEqual(256)
    }
    expect(sweeps).toBeGreaterThanOrEqual(count / 256)
    // A machine that is busy with other tests stops one now and then.
    expect(Number(await redis.slowlog('LEN'))).toBeLessThan(sweeps / 10)
    const commands = await redis.info('commandstats')
    expect(commands).not.toMatch(/cmdstat_(hgetall|keys|smembers|hvals|sort):/)
    expect(await queue.stats()).toMatchObject({ claimed: 0, ready: count })
    expect(conserved(await queue.stats())).toBe(true)
  })

  it('F10 that are delayed, one for each millisecond, cost an idle consumer few commands', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const queue = new Client(backendOn(server.url), 'q')
    for (let from = 0; from < 100_000; from += 10_000) {
      await queue.enqueue(
        ...Array.from({ length: 10_000 }, (_, index) => ({ id: `m${from + index}`, delayMs: HOUR_MS + from + index })),
      )
    }
    const consumer = queueOn(backendOn(server.url), {}, 'q')
    const subscription = consumer.source().subscribe()
    onTestFinished(() => subscription.unsubscribe())
    await until('it listens', async () => ((await redis.pubsub('CHANNELS', '*')) as string[]).length > 0)
    await redis.config('RESETSTAT')
    await pause(5_000)
    const calls = /cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0
    expect(Number(calls)).toBeLessThan(12)
  })

  it('B10 outcomes do not keep an audit from finding lost claims within ten seconds', async () => {
    const queue = new Client(backendOn(server.url))
    await queue.driver.configure({ retention: { outcomesMs: HOUR_MS, maxOutcomes: 10_000 } })
    await fill(queue, names(5_000))
    await queue.drain(1_000)
    const lost = Array.from({ length: 10 }, (_, index) => `lost${index}`)
    await queue.enqueue(...lost)
    await queue.claim(10, { leaseMs: 1_000 })
    await inspect(server).del(`millrace:{${queue.name}}:c`)
    const found: string[] = []
    const source = queueOn(backendOn(server.url), {}, queue.name).source({ credit: 20 })
    const subscription = source.subscribe(({ id, attempt }) => void found.push(`${id}:${attempt}`))
    onTestFinished(() => subscription.unsubscribe())
    await expect.poll(() => found.toSorted(), { timeout: 10_000 }).toEqual(lost.map((id) => `${id}:2`))
  })

  it('H16 of idle sources share their traffic: that of two hundred is that of one', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const queue = queueOn(backendOn(server.url), {}, 'q')
    const subscriptions = Array.from({ length: 200 }, () => queue.source().subscribe())
    onTestFinished(() => {
      for (const each of subscriptions) each.unsubscribe()
    })
    await until('they listen', async () => ((await redis.pubsub('CHANNELS', '*')) as string[]).length > 0)
    await until('they have looked', async () => Number(await redis.exists('millrace:{q}:q')) === 1)
    await redis.config('RESETSTAT')
    await pause(5_000)
    const calls = /cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0
    expect(Number(calls)).toBeLessThan(12)
  })
})
