/** Order is that of the commits, whatever the clocks of producers say. */
import { type Delivery, type Entry, mergeMap, pipe, type Queue, run } from 'millrace'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import type { Told } from './children/producer.js'
import { Rig } from './rig.js'

let server: EtcdServer
let rig: Rig

const MINUTE_MS = 60_000
const program = await bundled(new URL('children/producer.ts', import.meta.url))

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(async () => {
  await server.stop()
})

beforeEach(() => {
  rig = new Rig(onTestFinished)
})

/** Names whose order by letters is against that of their numbers. */
function reversed(from: number, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `m${String(99_999 - from - index).padStart(5, '0')}`)
}

const entries = (ids: readonly string[]): Entry<string>[] => ids.map((id) => ({ payload: id, id }))

async function drained(queue: Queue<string>): Promise<string[]> {
  const ids: string[] = []
  const flow = pipe(
    queue.source({ until: 'empty' }),
    mergeMap(({ id }) => void ids.push(id), 50),
  )
  await run(flow)
  return ids
}

async function listed(queue: Queue<string>): Promise<string[]> {
  const ids: string[] = []
  for await (const { id } of queue.peek({ state: 'ready' })) ids.push(id)
  return ids
}

type Producing = (ids: readonly string[], delayMs?: number) => Promise<void>

/** A producer whose clock is wrong by so much. */
async function producer(queue: Queue<string>, offMs: number): Promise<Producing> {
  const child = new Child<Told>(program, [server.url, queue.name, String(offMs)])
  const ready = await child.hear((told): told is Extract<Told, { ready: true }> => 'ready' in told)
  expect(Math.abs(ready.now - Date.now() - offMs)).toBeLessThan(MINUTE_MS / 2)
  let count = 0
  return async (ids, delayMs = 0) => {
    count += 1
    const wanted = count
    child.tell(entries(ids).map((entry) => ({ ...entry, delayMs })))
    await child.hear((told) => 'enqueued' in told && told.enqueued === wanted)
  }
}

/** One of the things that bring a message in front of others, or behind them. */
type Move = (queue: Queue<string>, next: () => string) => Promise<unknown>

const MOVES: readonly Move[] = [
  (queue, next) => queue.enqueue(next()),
  (queue, next) => queue.enqueue(next(), { priority: 3 }),
  (queue, next) => queue.enqueue(next(), { priority: 9 }),
  (queue, next) => queue.enqueueAll([5, 0, 7].map((priority) => ({ payload: next(), priority }))),
  async (queue) => (await queue.tryReceive())?.requeue(),
  async (queue) => (await queue.tryReceive())?.release(),
  async (queue) => (await queue.tryReceive())?.requeue({ delayMs: 1 }),
  async (queue) => (await queue.tryReceive())?.deadLetter('no'),
  (queue) => queue.deadLetters.requeueAll(),
  async (queue) => (await queue.tryReceive())?.ack(),
]

describe('who looks where it was', () => {
  const any = <T>(all: readonly T[]) => all[Math.floor(Math.random() * all.length)] as T
  let queues: readonly Queue<string>[]
  let held: Delivery<string>[]
  let count: number

  beforeEach(() => {
    const name = rig.queue(rig.backend(server.url)).name
    queues = [1, 2, 3].map(() => rig.queue(rig.backend(server.url), { maxDeliveries: 1_000 }, name))
    held = []
    count = 0
  })

  const next = () => {
    count += 1
    return String(count)
  }

  /** What others do meanwhile. */
  async function disorder(round: number): Promise<void> {
    if (round % 20 === 0) await any(queues).enqueueAll(entries([next(), next(), next(), next(), next()]))
    await any(MOVES)(any(queues), next)
    if (round % 3 === 0) await held.splice(Math.floor(Math.random() * held.length), 1)[0]?.release()
  }

  async function keepOrAck(delivery: Delivery<string>): Promise<void> {
    if (Math.random() < 0.5) held.push(delivery)
    else await delivery.ack()
  }

  it('N2, E5 gets what is first, whatever is put in front meanwhile, and whatever others hold and give back', async () => {
    for (let round = 0; round < 400; round += 1) {
      await disorder(round)
      // By a listing, which begins where all begins.
      const [first] = await listed(any(queues))
      const delivery = await any(queues).tryReceive()
      expect([round, delivery?.id]).toEqual([round, first])
      if (delivery) await keepOrAck(delivery)
    }
    expect(count).toBeGreaterThan(100)
  })
})

describe('the order of a batch', () => {
  it.each([128, 129, 400])(
    'N31 of %i is that of its arguments, behind what was there and before what comes',
    async (size) => {
      const queue = rig.queue(rig.backend(server.url))
      const other = rig.queue(rig.backend(server.url), {}, queue.name)
      const before = reversed(0, 3)
      const batch = reversed(3, size)
      const after = reversed(3 + size, 1)
      for (const id of before) await other.enqueue(id, { id })
      const enqueued = await queue.enqueueAll(entries(batch))
      expect(enqueued.map(({ id }) => id)).toEqual(batch)
      for (const id of after) await other.enqueue(id, { id })
      const expected = [...before, ...batch, ...after]
      expect(await listed(other)).toEqual(expected)
      expect(await drained(queue)).toEqual(expected)
    },
  )

  it('N31 of many batches of one turn is that of the calls', async () => {
    const queue = rig.queue(rig.backend(server.url))
    const ids = reversed(0, 600)
    const calls: Promise<unknown>[] = []
    for (let from = 0; from < ids.length; from += 30) {
      const some = ids.slice(from, from + 30)
      calls.push(
        from % 60 === 0 ? queue.enqueueAll(entries(some)) : Promise.all(some.map((id) => queue.enqueue(id, { id }))),
      )
    }
    await Promise.all(calls)
    expect(await drained(queue)).toEqual(ids)
  })

  it('N53 that becomes due in one instant is kept', async () => {
    const queue = rig.queue(rig.backend(server.url))
    const ids = reversed(0, 140)
    await queue.enqueueAll(ids.map((id) => ({ payload: id, id, delayMs: 400 })))
    const found: string[] = []
    for (let left = ids.length; left > 0; left -= 1) {
      const delivery = await queue.receive({ timeoutMs: 5_000 })
      found.push(delivery?.id ?? 'nothing')
      await delivery?.ack()
    }
    expect(found).toEqual(ids)
  })
})

describe('producers whose clocks differ', () => {
  it('N34, N55 by minutes: order is that of the calls, and at the same time that of the revisions; a delay is shifted by as much as a clock is wrong, and nothing is stuck', async () => {
    const queue = rig.queue(rig.backend(server.url))
    const ours: Producing = (ids) => queue.enqueueAll(entries(ids)).then(() => {})
    const [late, early] = await Promise.all([producer(queue, 10 * MINUTE_MS), producer(queue, -10 * MINUTE_MS)])
    const expected: string[] = []
    for (let round = 0; round < 12; round += 1) {
      const ids = reversed(expected.length, 1 + (round % 4))
      await [late, early, ours][round % 3]?.(ids)
      expected.push(...ids)
    }
    expect(await listed(queue)).toEqual(expected)
    expect(await drained(queue)).toEqual(expected)

    await Promise.all(
      [late, early, ours].map(async (put, index) => {
        for (let count = 0; count < 20; count += 1) await put([`p${index}-${count}-a`, `p${index}-${count}-b`])
      }),
    )
    await expectOrderOfRevisions(await listed(queue), 120)
    await drained(queue)

    await early(['overdue'], 5 * MINUTE_MS)
    // By its own clock that is five minutes from now; by ours it was five minutes ago.
    expect((await queue.receive({ timeoutMs: 4_000 }))?.id).toBe('overdue')
  })
})

/** Messages that were put in by twos are in the order of the transactions that did it. */
async function expectOrderOfRevisions(ids: readonly string[], count: number): Promise<void> {
  expect(ids).toHaveLength(count)
  // The key that carries a payload was made by the transaction that put it in.
  const stored = await server.gateway.list()
  const revisionOf = (id: string) =>
    stored.find(({ value }) => value.includes(id) && value.length < 400)?.createRevision ?? 0
  const revisions = ids.map(revisionOf)
  expect(revisions).toEqual(revisions.toSorted((one, other) => one - other))
  expect(new Set(revisions).size).toBeGreaterThan(30)
  expect(ids.filter((id) => id.endsWith('-a')).map((id) => ids.indexOf(id))).toEqual(
    ids.filter((id) => id.endsWith('-b')).map((id) => ids.indexOf(id) - 1),
  )
}

describe('a place in the queue', () => {
  it('N35 is kept by what is put back, also by another process, and by what lapses', async () => {
    const queue = rig.queue(rig.backend(server.url))
    const other = rig.queue(rig.backend(server.url), {}, queue.name)
    await queue.enqueueAll(entries(['a', 'b', 'c']))
    const a = await queue.receive()
    const b = await other.receive()
    await queue.enqueue('d', { id: 'd' })
    await a?.requeue()
    await b?.release()
    expect(await listed(other)).toEqual(['a', 'b', 'c', 'd'])
    expect(await other.tryReceive()).toMatchObject({ id: 'a', attempt: 2 })
    expect(await queue.tryReceive()).toMatchObject({ id: 'b', attempt: 1 })
  })

  it('N56, N58 is by priority, then by commit, over a restart of the server', async () => {
    const own = await rig.use(startEtcd())
    const queue = rig.queue(rig.backend(own.url))
    for (const [id, priority] of [
      ['x', 9],
      ['y', 2],
      ['z', 9],
      ['w', 2],
    ] as const) {
      await queue.enqueue(id, { id, priority })
    }
    await own.restart()
    expect(await drained(queue)).toEqual(['y', 'w', 'x', 'z'])
  })

  it('N59, N60 ages with what it waits, and is overtaken by nothing that comes later than that', async () => {
    const queue = rig.queue(rig.backend(server.url), { ageing: { stepMs: 1 } })
    await queue.enqueue('old', { id: 'old', priority: 50 })
    await new Promise((resolve) => setTimeout(resolve, 100))
    await queue.enqueue('new', { id: 'new', priority: 0 })
    await queue.enqueue('low', { id: 'low', priority: 5_000 })
    expect(await drained(queue)).toEqual(['old', 'new', 'low'])
  })
})
