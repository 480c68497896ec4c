/** The member has carried out a call, and nobody hears of it: every call of a life of a queue, one at a time. */
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import {
  type Account,
  COURSES,
  type Course,
  expectSameAs,
  type Life,
  lived,
  placesIn,
} from '../../support/lost-replies.js'
import { timed } from '../../support/rig.js'
import { type EtcdProxy, startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { startTcpProxy } from '../../support/servers/tcp-proxy.js'
import { until } from '../../support/wait.js'
import { IS_WHOLE } from '../../support/whole.js'
import { isClaim, isTxn, Rig, urlOf } from './rig.js'

let server: EtcdServer
let rig: Rig
let lives = 0

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

beforeEach(() => {
  rig = new Rig(onTestFinished)
})

/** How many of a course's transactions are lost in turn, in each of the ways: not the same ones. */
const SAMPLE = 2
const WAYS = 4

type Loss = 'cut' | 'refusal' | 'silence'

function lifeWith(loss: Loss): () => Promise<Life & { readonly proxy: EtcdProxy; readonly prefix: string }> {
  return async () => {
    lives += 1
    const prefix = `life-${lives}/`
    const proxy = await startEtcdProxy(server.port)
    const backend = rig.backend(proxy.url, { prefix })
    return {
      proxy,
      prefix,
      queue: rig.queue(backend, {}, 'q'),
      other: rig.queue(backend, {}, 'other'),
      countsFences: false,
      calls: () => proxy.count(isTxn),
      lose: (nth) => proxy.dropReply({ nth, match: isTxn, loss }),
      stop: () => proxy.stop(),
    }
  }
}

const courses = Object.entries(COURSES)
const wholes = new Map<Course, Promise<Account>>()

/** What a course comes to in which nothing is lost. */
function wholeOf(course: Course): Promise<Account> {
  const known = wholes.get(course) ?? lived(lifeWith('cut'), course)
  wholes.set(course, known)
  return known
}

/** All of them, or as many as are to do, evenly; each of the ways begins elsewhere. */
function someOf(all: readonly number[], way: number): number[] {
  if (IS_WHOLE) return [...all]
  const at = (index: number) => Math.floor(((index + way / WAYS) * all.length) / SAMPLE)
  return [...new Set(Array.from({ length: SAMPLE }, (_, index) => all[at(index)] as number))]
}

async function expectSame(way: number, loss: Loss, course: Course, lost = 1): Promise<void> {
  const whole = await wholeOf(course)
  await expectSameAs(whole, lifeWith(loss), course, someOf(placesIn(whole, lost), way), lost)
}

describe('the reply to a transaction is lost with its connection, and', () => {
  it.each(courses)('E6, N11, N27, N28, N43 %s ends as it would have', (_, course) => expectSame(0, 'cut', course))
})

describe('a transaction is carried out, and told to be unavailable, and', () => {
  it.each(courses)('E6, N27, N28 %s ends as it would have', (_, course) => expectSame(1, 'refusal', course))
})

describe('the replies to a transaction and to the two after it are lost, and', () => {
  it.each(courses)('E6, N27, N28 %s ends as it would have', (_, course) => expectSame(2, 'cut', course, 3))
})

describe('a transaction that is never answered', () => {
  it.each(courses.filter(([name]) => ['settling', 'burying'].includes(name)))(
    'E6, A10, B22 ends by a deadline of our own, and is asked for again: %s',
    (_, course) => expectSame(3, 'silence', course),
  )
})

describe('the reply to the granting of a lease is lost, and', () => {
  it.each(['cut', 'refusal', 'silence'] as const)(
    'C5 the next is used, and the first does not outlive its term: %s',
    async (loss) => {
      const own = await rig.use(startEtcd())
      const proxy = await rig.use(startEtcdProxy(own.port))
      const queue = rig.queue(rig.backend(proxy.url), { leaseMs: 2_000 })
      await queue.enqueue('a', { id: 'a' })
      const { dropped } = proxy.dropReply({ match: ({ method }) => method === 'Lease/LeaseGrant', loss })
      const receiving = queue.receive({ timeoutMs: 15_000 })
      await dropped
      const delivery = await receiving
      expect(delivery).toMatchObject({ id: 'a', attempt: 1 })
      expect(await delivery?.ack()).toBe('settled')
      await queue.close()
      await until('no lease is left', async () => (await own.gateway.leases()).length === 0, 6_000)
    },
  )
})

describe('a cancel while no reply comes any more', () => {
  it('N12, D1 settles in its bound, says what it could not give back, and that lapses', async () => {
    const proxy = await rig.use(startEtcdProxy(server.port))
    const line = await rig.use(startTcpProxy(proxy.port))
    const prefix = 'silent/'
    const queue = rig.queue(rig.backend(urlOf(line), { prefix }), { leaseMs: 2_000 }, 'q')
    const direct = rig.queue(rig.backend(server.url, { prefix }), {}, 'q')
    // So it holds a lease, and has worked, before the replies stop.
    await direct.enqueue('first', { id: 'first' })
    expect(await (await queue.receive())?.ack()).toBe('settled')
    const cancel = new AbortController()
    const source = queue.source({ graceMs: 500, signal: cancel.signal })
    const ended = (async () => {
      for await (const _ of source);
    })().catch((error: Error) => error.name)
    await until('it watches', () => proxy.messagesIn('Watch/Watch') > 0)
    await queue.stats()
    // The claim that finds it is carried out, and from then on nothing comes back.
    const { dropped } = proxy.dropReply({ match: isClaim, loss: 'silence' })
    await direct.enqueue('a', { id: 'a' })
    await dropped
    line.hold('replies')
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
