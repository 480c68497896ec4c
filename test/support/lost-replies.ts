/** The server has run a call, and nobody hears of it: every call of a life of a queue, one at a time. */
import { type Delivery, mergeMap, pipe, type Queue, type QueueStats, run } from 'millrace'
import { expect } from 'vitest'
import { conserved } from '../../src/testing/conserved.js'
import { Effects, inGroups } from './rig.js'
import { gate } from './wait.js'

/** Two queues of their own, on a connection of their own, whose replies can be lost. */
export interface Life {
  readonly queue: Queue<string>
  readonly other: Queue<string>
  /** Whether fences count up by one, so that they are the same each time; otherwise they only rise. */
  readonly countsFences: boolean
  /** How many calls have been sent, of those whose replies can be lost. */
  calls(): number
  /** Loses the reply to the nth of those that come from now on. */
  lose(nth: number): { readonly dropped: Promise<unknown>; cancel(): void }
  stop(): Promise<unknown>
}

/** Calls of a life, with what was answered. */
export type Course = (life: Life) => Promise<readonly unknown[]>

/** Everything that was answered, and everything that is stored then. */
export interface Account {
  readonly answers: readonly unknown[]
  readonly stats: readonly QueueStats[]
  readonly calls: number
  /** How many replies were lost; what was sent behind one may be lost with it, and does not count. */
  readonly hit: number
}

/** A course of calls, lived through with the reply to the k-th call lost, and to so many after it. */
export async function lived(fresh: () => Promise<Life>, course: Course, k?: number, lost = 1): Promise<Account> {
  const life = await fresh()
  const drops = Array.from({ length: k === undefined ? 0 : lost }, (_, more) => life.lose((k as number) + more))
  let hit = 0
  for (const { dropped } of drops) void dropped.then(() => (hit += 1))
  try {
    const answers = await course(life)
    const calls = life.calls()
    const stats = await Promise.all([life.queue.stats(), life.other.stats()])
    return { answers, stats: stats.map((each) => ({ ...each, oldestReadyAgeMs: 0 })), calls, hit }
  } finally {
    for (const drop of drops) drop.cancel()
    await Promise.all([life.queue.close({ graceMs: 0 }), life.other.close({ graceMs: 0 })])
    await life.stop()
  }
}

/** Every k comes to the same end as a course in which nothing was lost. */
export async function expectSameWithAnyLost(fresh: () => Promise<Life>, course: Course, lost = 1): Promise<void> {
  // The first one may teach the server something, which costs more calls.
  await lived(fresh, course)
  const whole = await lived(fresh, course)
  await expectSameAs(whole, fresh, course, placesIn(whole, lost), lost)
}

/** Which replies can be lost, each with so many after it. */
export function placesIn(whole: Account, lost: number): number[] {
  return Array.from({ length: whole.calls - lost + 1 }, (_, index) => index + 1)
}

/** With the k-th reply lost, for each k of these, a course comes to the same end as the whole one. */
export async function expectSameAs(
  whole: Account,
  fresh: () => Promise<Life>,
  course: Course,
  ks: readonly number[],
  lost: number,
): Promise<void> {
  for (const stats of whole.stats) expect([stats.claimed, conserved(stats)]).toEqual([0, true])
  expect(placesIn(whole, lost).length).toBeGreaterThan(3)
  let hits = 0
  await inGroups(ks, 8, async (k) => {
    const { answers, stats, hit } = await lived(fresh, course, k, lost)
    hits += Math.min(hit, 1)
    expect({ k, answers, stats }).toEqual({ k, answers: whole.answers, stats: whole.stats })
  })
  // Calls that happen to go together are fewer, so the last ones may not be there.
  expect(hits).toBeGreaterThan(0.8 * ks.length)
}

const entry = (payload: string) => ({ payload, id: payload })

async function next(queue: Queue<string>): Promise<Delivery<string>> {
  const delivery = await queue.receive({ timeoutMs: 15_000 })
  if (delivery === undefined) throw new Error('nothing was ready')
  return delivery
}

type Shown = (delivery: Delivery<string>) => readonly unknown[]

/** What is compared of deliveries, in the order in which they came. */
function showing({ countsFences }: Life): Shown {
  const last = new Map<string, number>()
  return ({ id, attempt, deliveryCount, fence }) => {
    const rises = fence > (last.get(id) ?? 0)
    last.set(id, fence)
    return [id, attempt, deliveryCount, countsFences ? fence : rises]
  }
}

async function entering({ queue }: Life) {
  return [
    await queue.enqueue('a', { id: 'a' }),
    await queue.enqueueAll(['b', 'c', 'd'].map(entry)),
    await queue.enqueue('a', { id: 'a' }),
    await queue.enqueueAll(['d', 'e'].map(entry)),
    await queue.enqueue('f', { id: 'f', delayMs: 60_000 }),
    await queue.cancel('b'),
    await queue.cancel('b'),
    await queue.cancel('f'),
    await queue.cancel('nobody'),
    await queue.outcome('b', { timeoutMs: 0 }),
    await queue.enqueue('g', { id: 'g', delayMs: 60_000 }),
    await queue.purge({ state: 'delayed' }),
    await queue.enqueue('g', { id: 'g' }),
    await queue.purge(),
    await queue.purge(),
    await queue.enqueue('h', { id: 'h' }),
  ]
}

async function settling(life: Life) {
  const { queue, other } = life
  const shown = showing(life)
  const answers: unknown[] = [await queue.enqueueAll(['a', 'b', 'c', 'd', 'e'].map(entry))]
  const a = await next(queue)
  answers.push(shown(a), await a.extend(60_000), await a.ack({ sum: 1 }), await a.ack())
  answers.push(await queue.outcome('a', { timeoutMs: 0 }))
  const b = await next(queue)
  answers.push(shown(b), await b.requeue({ reason: 'again' }))
  const bAgain = await next(queue)
  answers.push(shown(bAgain), await bAgain.release())
  const bAtLast = await next(queue)
  answers.push(shown(bAtLast), await bAtLast.requeue({ delayMs: 60_000 }))
  const c = await next(queue)
  answers.push(shown(c), await c.forward(other, 'from c', { id: 'c2' }))
  const c2 = await next(other)
  answers.push(shown(c2), await c2.ack())
  const d = await next(queue)
  answers.push(shown(d), await queue.cancel('d'), await d.requeue(), await queue.outcome('d', { timeoutMs: 0 }))
  const e = await next(queue)
  answers.push(shown(e), await e.ack())
  answers.push(await queue.tryReceive())
  return answers
}

async function burying(life: Life) {
  const { queue } = life
  const shown = showing(life)
  const answers: unknown[] = [await queue.enqueueAll(['a', 'b', 'c', 'd'].map(entry))]
  for (const reason of ['bad', 'worse', 'worst']) {
    const delivery = await next(queue)
    answers.push(shown(delivery), await delivery.deadLetter(reason))
  }
  answers.push(await queue.deadLetters.requeue('a'), await queue.deadLetters.requeue('a'))
  answers.push(await queue.deadLetters.purge('b'), await queue.deadLetters.purge('b'))
  answers.push(await queue.deadLetters.requeueAll())
  for (let count = 0; count < 2; count += 1) {
    const delivery = await next(queue)
    answers.push(shown(delivery), await delivery.ack())
  }
  const last = await next(queue)
  answers.push(shown(last), await last.deadLetter('late'), await queue.deadLetters.purgeAll())
  answers.push(await queue.purge({ state: ['ready', 'dead'] }))
  return answers
}

/** A pipeline with an end, four at once, that acks, requeues, buries and forwards. */
async function flowing({ queue, other }: Life) {
  const effects = new Effects()
  const ids = Array.from({ length: 24 }, (_, index) => `m${String(index).padStart(2, '0')}`)
  const enqueued = await Promise.all(ids.map((id) => queue.enqueue(id, { id })))
  const handler = async (delivery: Delivery<string>) => {
    const number = Number(delivery.id.slice(1))
    effects.note(`${delivery.id} ${delivery.attempt}`)
    if (number % 4 === 1 && delivery.attempt === 1) await delivery.requeue()
    else if (number % 4 === 2) await delivery.deadLetter('every fourth')
    else if (number % 4 === 3) await delivery.forward(other, delivery.payload, { id: delivery.id })
  }
  const flow = pipe(queue.source({ until: 'idle' }), mergeMap(handler, 4))
  const there = pipe(
    other.source({ until: 'idle' }),
    mergeMap(({ id }: Delivery<string>) => effects.note(`other ${id}`), 4),
  )
  const summaries = [await run(flow), await run(there)]
  return [enqueued, effects.doubled, effects.size, summaries]
}

/** A source is stopped in mid-work: what it held goes back. */
async function stopping(life: Life) {
  const { queue } = life
  const shown = showing(life)
  const enqueued = await queue.enqueueAll(['a', 'b', 'c', 'd', 'e', 'f'].map(entry))
  const working = gate()
  const cancel = new AbortController()
  let started = 0
  const handler = async (delivery: Delivery<string>) => {
    if (delivery.id === 'a') return
    started += 1
    if (started === 3) working.open()
    await new Promise((resolve) => delivery.signal.addEventListener('abort', resolve))
    throw delivery.signal.reason
  }
  const running = run(pipe(queue.source(), mergeMap(handler, 3)), { signal: cancel.signal, graceMs: 1_000 })
  await working.promise
  cancel.abort()
  const began = performance.now()
  const summary = await running
  const tookMs = performance.now() - began
  const source = queue.source()
  const taken: unknown[] = []
  for await (const delivery of source) {
    taken.push(shown(delivery)[0], delivery.attempt)
    await delivery.ack()
    if (taken.length === 4) break
  }
  const stopped = await source.stop({ graceMs: 0 })
  const ready = await queue.size()
  return [enqueued, summary, tookMs < 6_000 ? 'in time' : `after ${tookMs} ms`, taken, stopped, ready]
}

/** Ways through the life of a queue that between them make each call. */
export const COURSES = { entering, settling, burying, flowing, stopping } as const
