/** The server has run a call, and nobody hears of it: every call of a life of a queue, one at a time. */
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import { COURSES, expectSameWithAnyLost, type Life, lived } from '../../support/lost-replies.js'
import { inGroups, timed } from '../../support/rig.js'
import { type RedisProxy, startProxy } from '../../support/servers/proxy.js'
import { type RedisServer, startRedis } from '../../support/servers/redis-server.js'
import { until } from '../../support/wait.js'
import { isScript, Rig } from './rig.js'

let server: RedisServer
let rig: Rig
let lives = 0

beforeAll(async () => {
  server = await startRedis()
})

afterAll(() => server.stop())

beforeEach(() => {
  rig = new Rig(onTestFinished)
})

async function freshLife(): Promise<Life & { readonly proxy: RedisProxy; readonly hashTag: string }> {
  lives += 1
  const hashTag = `life-${lives}`
  const proxy = await startProxy(server.port)
  const backend = rig.backend(proxy.url, { hashTag })
  return {
    proxy,
    hashTag,
    queue: rig.queue(backend, {}, 'q'),
    other: rig.queue(backend, {}, 'other'),
    countsFences: true,
    calls: () => proxy.count(isScript),
    lose: (nth) => proxy.dropReply({ nth, match: isScript }),
    stop: () => proxy.stop(),
  }
}

describe('the reply to any one call is lost, and', () => {
  it('R4, N28 what is enqueued, cancelled and purged is told as it was, and done once', () =>
    expectSameWithAnyLost(freshLife, COURSES.entering))

  it('R4, N27 what is claimed and settled is told as it was, and done once', () =>
    expectSameWithAnyLost(freshLife, COURSES.settling))

  it('R4, N43 dead letters are requeued and purged once', () => expectSameWithAnyLost(freshLife, COURSES.burying))

  it('R4, A14 a pipeline handles each message once, and comes to its end', () =>
    expectSameWithAnyLost(freshLife, COURSES.flowing))

  it('R4, N11 a stop gives back what was held, in its bound', () => expectSameWithAnyLost(freshLife, COURSES.stopping))
})

describe('the reply to any call and to the two after it is lost, and', () => {
  it.each(Object.entries(COURSES))('R4, N27, N28 %s ends as it would have', (_, course) =>
    expectSameWithAnyLost(freshLife, course, 3),
  )
})

describe('a server that forgets its scripts all the time', () => {
  const { stopping: _, ...courses } = COURSES

  it.each(Object.entries(courses))('R2, A24 %s ends as it would have, also with replies lost', async (_, course) => {
    const { answers, stats } = await lived(freshLife, course)
    let isOver = false
    const forgetting = (async () => {
      const client = new Redis(server.url)
      while (!isOver) await client.script('FLUSH')
      client.disconnect()
    })()
    try {
      await inGroups([undefined, 1, 4, 7, 10, 13], 3, async (k) => {
        const forgotten = await lived(freshLife, course, k, 2)
        expect({ k, answers: forgotten.answers, stats: forgotten.stats }).toEqual({ k, answers, stats })
      })
    } finally {
      isOver = true
      await forgetting
    }
  })
})

describe('a cancel while no reply comes any more', () => {
  it('N12, D1 settles in its bound, says what it could not give back, and that lapses', async () => {
    const { proxy, hashTag, queue } = await freshLife()
    onTestFinished(() => proxy.stop())
    const direct = rig.queue(rig.backend(server.url, { hashTag }), {}, 'q')
    await queue.stats()
    const before = proxy.count(isScript)
    const cancel = new AbortController()
    const source = queue.source({ leaseMs: 1_500, graceMs: 500, signal: cancel.signal })
    const ended = (async () => {
      for await (const _ of source);
    })().catch((error: Error) => error.name)
    await expect.poll(() => proxy.count(isScript)).toBeGreaterThan(before)
    // It claims once more when it has subscribed. What is answered behind that is answered after it.
    await until('it has claimed behind its subscription', () => {
      const listens = proxy.commands.findIndex(({ name }) => name === 'subscribe')
      return listens >= 0 && proxy.commands.slice(listens).some(({ args }) => isScript(args))
    })
    await queue.stats()
    // The claim that finds it is run, and from then on nothing comes back.
    proxy.hold('replies')
    await direct.enqueue('a', { id: 'a' })
    await expect.poll(async () => (await direct.stats()).claimed, { timeout: 5_000 }).toBe(1)
    cancel.abort()
    const tookMs = await timed(async () => expect(await ended).toBe('AbortError'))
    expect(tookMs).toBeLessThan(5_500 + 1_000)
    expect(await source.stop()).toMatchObject({ released: 0, abandoned: 1 })
    const again = await direct.receive({ timeoutMs: 5_000 })
    expect(again).toMatchObject({ id: 'a', attempt: 2 })
    await again?.ack()
    expect(conserved(await direct.stats())).toBe(true)
  })
})
