/** Where a turn that looks plain is not: the modules have to carry it out, and nothing may have been written before. */
import { afterAll, describe, expect, it } from 'vitest'
import { startRedis } from '../../support/servers/redis-server.js'
import { message } from '../memory/harness.js'
import { backendOn, Client, freshServer, inspect } from './harness.js'

const server = await startRedis()
afterAll(() => server.stop())

const HOUR_MS = 3_600_000

/** A queue whose turns can be plain: something was claimed and acked before. */
async function warm(url = server.url) {
  const queue = new Client(backendOn(url))
  await queue.enqueue('first')
  await queue.drain()
  return { queue, key: (suffix: string) => `millrace:{${queue.name}}:${suffix}` }
}

describe('a record that is none', () => {
  it.each(['garbage', '', '\0', '\u0002'.repeat(28)])(
    'B10 %j does not hold up the messages behind it',
    async (text) => {
      const { queue, key } = await warm()
      await queue.enqueue('a', 'b')
      await inspect(server).hset(key('m'), 'a', text)
      expect((await queue.claim(5)).map(({ id }) => id)).toEqual(['b'])
      expect(await queue.stats()).toMatchObject({ ready: 0, claimed: 1, droppedTotal: 1 })
    },
  )

  it.each(['garbage', '', '\u0002'.repeat(40)])('B10 %j makes its own ack stale and no other', async (text) => {
    const { queue, key } = await warm()
    await queue.enqueue('a', 'b')
    const claims = await queue.claim(5)
    await inspect(server).hset(key('m'), 'a', text)
    expect(await queue.ack(...claims)).toEqual(['stale', 'acked'])
  })

  it.each(['garbage', '', '\0'])('B10 %j does not hold its id', async (text) => {
    const { queue, key } = await warm()
    await inspect(server).hset(key('m'), 'a', text)
    expect(await queue.enqueue('a', 'b')).toEqual(['enqueued', 'enqueued'])
  })
})

describe('an outcome of an id that has ended twice', () => {
  it('N29 is forgotten when neither is wanted any more', async () => {
    const { queue, key } = await warm()
    const redis = inspect(server)
    await queue.driver.configure({ retention: { outcomesMs: 30, maxOutcomes: 10 } })
    await queue.enqueue('a')
    await queue.drain()
    await expect.poll(async () => (await queue.driver.outcome('a', false)).state).toBe('unknown')
    expect(await queue.enqueue('a')).toEqual(['enqueued'])
    const claims = await queue.claim(1)
    await queue.driver.configure({ retention: { outcomesMs: HOUR_MS, maxOutcomes: 0 } })
    await queue.ack(...claims)
    expect([await redis.llen(key('e')), await redis.hkeys(key('m'))]).toEqual([0, []])
  })
})

describe('answers', () => {
  it('N26 of thousands of requests that pass one that is not confirmed are kept, and cost no more with their number', async () => {
    const { queue, key } = await warm()
    const redis = inspect(server)
    const session = 'slow'
    const ask = (seq: number, floor = 1) => queue.driver.enqueue([message({ id: `m${seq}` })], { session, seq, floor })
    const written: number[] = []
    for (let seq = 1; seq <= 2_000; seq += 100) {
      // One is still on its way.
      await Promise.all(Array.from({ length: 100 }, (_, index) => seq + index === 50 || ask(seq + index)))
      written.push(await redis.strlen(key(`a:${session}`)))
    }
    expect(written.at(-1)).toBeGreaterThan(10_000)
    for (const seq of [1, 2, 99, 100, 101, 1_000, 2_000]) expect(await ask(seq)).toEqual(['enqueued'])
    expect((await queue.stats()).ready).toBe(1_999)
    // Whole values were written only as long as they were short.
    await redis.config('RESETSTAT')
    for (let seq = 2_001; seq <= 2_020; seq += 1) await ask(seq)
    const commands = await redis.info('commandstats')
    expect(/cmdstat_append:calls=(\d+)/.exec(commands)?.[1]).toBe('20')
    expect(commands).not.toMatch(/cmdstat_(get|set):/)
    // It is given up, so it may not be carried out any more, though the answers to those around it are still there.
    await ask(2_021, 60)
    await expect(ask(50)).rejects.toMatchObject({ name: 'TokenExpiredError' })
    // Confirmed at last, they are forgotten.
    await ask(2_022, 2_022)
    expect(await redis.strlen(key(`a:${session}`))).toBeLessThan(100)
    await expect(ask(5)).rejects.toMatchObject({ name: 'TokenExpiredError' })
    expect((await queue.stats()).ready).toBe(2_021)
    await expect(
      queue.driver.enqueue([message({ id: 'x' })], { session: 'another', seq: 1, floor: 5 }),
    ).rejects.toMatchObject({ name: 'TokenExpiredError' })
  })

  it('N26 are the same for one token that comes twice in a turn', async () => {
    const { queue } = await warm()
    const token = { session: 'twice', seq: 1, floor: 1 }
    const both = [1, 2].map(() => queue.driver.enqueue([message({ id: 'a' })], token))
    expect(await Promise.all(both)).toEqual([['enqueued'], ['enqueued']])
    expect((await queue.stats()).ready).toBe(1)
  })
})

describe('a server without memory', () => {
  it.each(['plain', 'ageing'])('F12 answers what adds nothing: %s', async (kind) => {
    const fresh = await freshServer()
    const redis = inspect(fresh)
    const { queue } = await warm(fresh.url)
    if (kind === 'ageing') await queue.driver.configure({ ageing: { stepMs: 5, cap: 10 } })
    await queue.enqueue('c')
    await redis.config('SET', 'maxmemory', '1mb')
    expect(await queue.enqueue('c')).toEqual(['duplicate'])
    await expect(queue.enqueue('d')).rejects.toMatchObject({ name: 'BackendError' })
    expect(await queue.stats()).toMatchObject({ ready: 1 })
  })
})
