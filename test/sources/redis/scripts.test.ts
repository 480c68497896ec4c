import { BackendUnavailableError } from 'millrace'
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import { eventsOf } from '../../support/events.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { backendOn, Client, failureOf, freshServer, inspect, queueOn } from './harness.js'

const server = await startRedis()
afterAll(() => server.stop())

const HOUR_MS = 3_600_000

describe('a server that has forgotten the scripts', () => {
  it('R2 A24 runs each of many calls once, however often it forgets them', async () => {
    const queue = new Client(backendOn(server.url))
    const other = new Client(backendOn(server.url), queue.name)
    const redis = inspect(server)
    const ids = Array.from({ length: 600 }, (_, index) => `m${index}`)
    const forgetting = { on: true }
    const forget = async () => {
      while (forgetting.on) await redis.script('FLUSH')
    }
    const forgotten = forget()
    const statuses = await Promise.all(ids.map((id, index) => (index % 2 ? queue : other).enqueue(id)))
    expect(statuses.flat()).toEqual(ids.map(() => 'enqueued'))
    const claims = (await Promise.all(ids.map((_, index) => (index % 2 ? queue : other).claim(1)))).flat()
    expect(claims.map(({ id }) => id).toSorted()).toEqual(ids.toSorted())
    expect(claims.map(({ deliveryCount }) => deliveryCount)).toEqual(ids.map(() => 1))
    const states = await Promise.all(claims.map((claim) => queue.ack(claim)))
    expect(states.flat()).toEqual(ids.map(() => 'acked'))
    forgetting.on = false
    await forgotten
    expect(await queue.stats()).toMatchObject({ enqueuedTotal: 600, ackedTotal: 600, claimed: 0, ready: 0, dead: 0 })
  })
})

describe('the time', () => {
  it('R11 N55 is that of the server, whatever a client believes', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 50 * HOUR_MS })
    onTestFinished(() => void vi.useRealTimers())
    const queue = new Client(backendOn(server.url))
    const [seconds] = (await inspect(server).time()) as unknown as [string]
    await queue.enqueue('now', { id: 'later', delayMs: HOUR_MS })
    const claim = await queue.one({ leaseMs: 10_000 })
    expect(Math.abs(claim.enqueuedAt - Number(seconds) * 1_000)).toBeLessThan(10_000)
    expect(claim.leaseExpiresAt - claim.enqueuedAt).toBeLessThan(20_000)
    vi.setSystemTime(Date.now() - 100 * HOUR_MS)
    expect(await queue.claim()).toEqual([])
    expect(await queue.ack(claim)).toEqual(['acked'])
  })
})

describe('two at work on the same claims', () => {
  it('R12 N40 two sweepers return each lapsed claim once', async () => {
    const redis = inspect(server)
    const one = new Client(backendOn(server.url))
    const rival = new Client(backendOn(server.url), one.name)
    const ids = Array.from({ length: 150 }, (_, index) => `m${index}`)
    await one.driver.configure({ maxDeliveries: 2 })
    await one.enqueue(...ids)
    for (const round of [1, 2]) {
      expect(await one.claim(150, { leaseMs: 20 })).toHaveLength(150)
      let moved = 0
      await expect
        .poll(async () => {
          const replies = await Promise.all([one.driver.sweep(40), rival.driver.sweep(40), rival.driver.sweep(40)])
          for (const reply of replies) moved += reply.moved
          return redis.zcard(`millrace:{${one.name}}:c`)
        })
        .toBe(0)
      expect(moved).toBe(150)
      expect(await one.stats()).toMatchObject(round === 1 ? { ready: 150, dead: 0 } : { ready: 0, dead: 150 })
    }
    const { items } = await one.driver.deadLetters({ limit: 200 })
    expect(items.map(({ attempts, errors }) => [attempts, errors.length])).toEqual(ids.map(() => [2, 2]))
    expect(conserved(await one.stats())).toBe(true)
  })

  it('R13 N41 a sweeper and a late ack make one outcome', async () => {
    const one = new Client(backendOn(server.url))
    const rival = new Client(backendOn(server.url), one.name)
    let [acked, returned] = [0, 0]
    for (let round = 0; round < 60; round += 1) {
      await one.enqueue(`m${round}`)
      const claim = await one.one({ leaseMs: 1 + (round % 3) })
      const [[state], { moved }] = await Promise.all([one.ack(claim), rival.driver.sweep(10)])
      if (state === 'acked') acked += 1
      else returned += 1
      expect(['acked', 'stale']).toContain(state)
      expect(state === 'acked' ? moved : 0).toBe(0)
      expect(await one.ack(...(await one.claim(5)))).toEqual(state === 'acked' ? [] : ['acked'])
    }
    expect(acked + returned).toBe(60)
    expect(await one.stats()).toMatchObject({ ackedTotal: 60, dead: 0, ready: 0, claimed: 0 })
  })
})

describe('a server that refuses for a while', () => {
  it('R17 as a read-only replica is typed with its own words, and a source goes on when it is a master again', async () => {
    const [master, replica] = [await freshServer(), await freshServer()]
    const redis = inspect(replica)
    const queue = queueOn(backendOn(replica.url), {}, 'q')
    await queue.enqueue('a')
    const client = new Client(backendOn(replica.url), 'q')
    const payloads: string[] = []
    const source = queue.source({ credit: 1 })
    const events = eventsOf(source)
    const errors: unknown[] = []
    const subscription = source.subscribe({
      next: (delivery) => {
        payloads.push(delivery.payload)
        void delivery.ack()
      },
      error: (error) => void errors.push(error),
    })
    onTestFinished(() => subscription.unsubscribe())
    await expect.poll(() => payloads).toEqual(['a'])
    await redis.replicaof('127.0.0.1', master.port)
    const causes: string[] = []
    for (const act of [() => client.enqueue('x'), () => client.claim(), () => client.stats()]) {
      // A connection that was told so is made anew, in case that somebody else is the master: some calls meet that.
      await expect
        .poll(async () => {
          const error = await failureOf(act)
          expect(error).toBeInstanceOf(BackendUnavailableError)
          causes.push(String(error.cause))
          return causes.at(-1)
        })
        .toMatch(/READONLY You can't write against a read only replica/)
    }
    await expect.poll(() => events.length, { timeout: 4_000 }).toBeGreaterThan(0)
    await redis.replicaof('NO', 'ONE')
    await expect.poll(() => client.enqueue('b').catch((error: Error) => error.message)).toEqual(['enqueued'])
    await expect.poll(() => payloads.at(-1), { timeout: 4_000 }).toBe('b')
    expect(errors).toEqual([])
  })

  it('R17 while it runs the script of somebody else is asked again, and answers', async () => {
    const server = await freshServer({ args: ['--lua-time-limit', '50'] })
    const queue = queueOn(backendOn(server.url), {}, 'q')
    await queue.enqueue('a')
    const killer = inspect(server)
    await killer.ping()
    const busy = inspect(server, { retryStrategy: () => null })
    const spinning = busy.eval('while true do end', 0).catch((error: Error) => error.message)
    await expect.poll(() => killer.ping().catch((error: Error) => error.message)).toMatch(/^BUSY/)
    const client = new Client(backendOn(server.url), 'q')
    const refused = await failureOf(() => client.stats())
    expect(refused).toBeInstanceOf(BackendUnavailableError)
    const calls = Promise.all([queue.enqueue('b'), queue.receive({ timeoutMs: 4_000 }), queue.stats()])
    await expect.poll(() => killer.script('KILL')).toBe('OK')
    expect(await spinning).toMatch(/killed/i)
    const [enqueued, delivery] = await calls
    expect(enqueued.status).toBe('enqueued')
    expect(delivery).toMatchObject({ payload: 'a', deliveryCount: 1 })
    expect(await delivery?.ack()).toBe('settled')
    expect(await queue.stats()).toMatchObject({ enqueuedTotal: 2, ackedTotal: 1, ready: 1 })
  })

  it('because too many are connected is waited for, and ends no source', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    await queueOn(backendOn(server.url), {}, 'q').enqueue('a')
    await redis.config('SET', 'maxclients', 1)
    const payloads: string[] = []
    const errors: unknown[] = []
    const source = queueOn(backendOn(server.url), {}, 'q').source()
    const events = eventsOf(source)
    const subscription = source.subscribe({
      next: ({ payload }) => void payloads.push(payload),
      error: (error) => void errors.push(error),
    })
    onTestFinished(() => subscription.unsubscribe())
    await expect.poll(() => events.length + errors.length).toBeGreaterThan(0)
    expect(errors).toEqual([])
    await redis.config('SET', 'maxclients', 1_000)
    await expect.poll(() => payloads, { timeout: 4_000 }).toEqual(['a'])
  })
})
