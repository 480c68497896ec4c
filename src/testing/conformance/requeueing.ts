/**
 * Coming back, and coming back too often: N35 to N39.
 */
import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import { mergeMap } from '../../operators/merge-map.js'
import { retryLater } from '../../operators/retry-later.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { run } from '../../sinks/run.js'
import { doomed } from './doomed.js'
import { type Bench, type Concern, type Scenario, scenario } from './kit.js'
import { all, EARLY_MS, now, range, receive, SLACK_MS, shortLeaseMs, soon, statsAre } from './wait.js'

function counts({ payload, attempt, deliveryCount }: Delivery<string>): readonly unknown[] {
  return [payload, attempt, deliveryCount]
}

async function oldPlace(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await queue.enqueueAll([{ payload: 'first' }, { payload: 'second' }])
  assert.equal(await (await receive(queue)).requeue({ reason: 'not now' }), 'settled')
  const again = await receive(peer)
  assert.deepEqual(counts(again), ['first', 2, 2])
  assert.deepEqual(counts(await receive(queue)), ['second', 1, 1])
  await statsAre(queue, { claimed: 2, enqueuedTotal: 2 })
}

/** Whatever is put back in whatever order, all of it comes again in the first order. */
async function oldPlaces(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll(range(6).map((n) => ({ payload: `${n}`, priority: n < 3 ? 0 : 5 })))
  const held: Delivery<string>[] = []
  for (const _ of range(5)) held.push(await receive(queue))
  for (const index of [3, 0, 4, 2, 1]) await held[index]?.requeue(index === 2 ? { countAttempt: false } : {})
  const again: Delivery<string>[] = []
  for (const _ of range(6)) again.push(await receive(queue))
  assert.deepEqual(again.map(counts), [
    ['0', 2, 2],
    ['1', 2, 2],
    ['2', 1, 2],
    ['3', 2, 2],
    ['4', 2, 2],
    ['5', 1, 1],
  ])
}

async function comesAtItsTime(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueue('a')
  const delivery = await receive(queue)
  const asked = now()
  assert.equal(await delivery.requeue({ delayMs: 150 }), 'settled')
  assert.equal(await queue.tryReceive(), undefined)
  await statsAre(queue, { delayed: 1 })
  const again = await receive(queue)
  const waited = now() - asked
  assert.ok(waited >= 150 - EARLY_MS, `it came after ${waited} ms`)
  assert.ok(waited < 150 + SLACK_MS, `it came after ${waited} ms`)
  assert.deepEqual(counts(again), ['a', 2, 2])
}

/** What was delayed arrives anew when its time is up: after what was ready by then, within its priority. */
async function arrivesAnew(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([
    { payload: 'urgent', priority: 1 },
    { payload: 'long', priority: 3 },
    { payload: 'short', priority: 3 },
  ])
  const held = [await receive(queue), await receive(queue), await receive(queue)]
  const delays = [60, 120, 60]
  for (const index of range(3)) await held[index]?.requeue({ delayMs: delays[index] ?? 0 })
  await queue.enqueueAll([
    { payload: 'ready', priority: 3 },
    { payload: 'last', priority: 4 },
  ])
  await soon('all are ready', ready(queue, 5))
  const again: Delivery<string>[] = []
  for (const _ of range(5)) again.push(await receive(queue))
  assert.deepEqual(again.map(counts), [
    ['urgent', 2, 2],
    ['ready', 1, 1],
    ['short', 2, 2],
    ['long', 2, 2],
    ['last', 1, 1],
  ])
}

/** What is due becomes ready also where nobody claims: `stats` may only tell it late, so a paused claim promotes. */
async function ready(queue: Queue<string>, wanted: number): Promise<void> {
  await queue.pause()
  while ((await queue.stats()).ready < wanted) await queue.receive({ timeoutMs: 5 })
  await queue.resume()
}

async function uncountedStays(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueue('a')
  assert.equal(await (await receive(queue)).requeue({ delayMs: 30, countAttempt: false }), 'settled')
  assert.deepEqual(counts(await receive(queue)), ['a', 1, 2])
}

async function nowMeansNow(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([{ payload: 'first' }, { payload: 'second' }])
  for (const [index, delayMs] of [0, -5, -60_000].entries()) {
    assert.equal(await (await receive(queue)).requeue({ delayMs }), 'settled')
    assert.deepEqual(await all(queue.peek({ state: 'delayed' })), [])
    const [head] = await all(queue.peek({ state: 'ready', limit: 1 }))
    assert.deepEqual([head?.payload, head?.attempt], ['first', index + 2])
  }
}

/** When the handler ran, and what it was told. */
interface Try {
  readonly at: number
  readonly attempt: number
}

async function failsAlways(bench: Bench, maxDeliveries: number): Promise<Try[]> {
  const queue = bench.queue({ maxDeliveries })
  await queue.enqueue('hopeless', { id: 'hopeless' })
  const tries: Try[] = []
  const handler = ({ attempt }: Delivery<string>) => {
    tries.push({ at: now(), attempt })
    throw new Error(`try ${attempt}`)
  }
  const flow = pipe(
    queue.source({ until: 'idle' }),
    retryLater({ baseMs: 30, factor: 2, jitter: 0 }),
    mergeMap(handler, 3),
  )
  const summary = await soon('the last try', run(flow))
  assert.deepEqual([summary.requeued, summary.deadLettered, summary.acked], [maxDeliveries - 1, 1, 0])
  await statsAre(queue, { dead: 1, enqueuedTotal: 1 })
  const [letter] = await all(queue.deadLetters)
  const reasons = range(maxDeliveries, 1).map((attempt) => `Error: try ${attempt}`)
  assert.deepEqual([letter?.attempts, letter?.deliveryCount], [maxDeliveries, maxDeliveries])
  assert.deepEqual([letter?.reason, letter?.errors], [reasons.at(-1), reasons])
  assert.equal((await queue.outcome('hopeless')).state, 'dead')
  return tries
}

async function hotLoop(bench: Bench): Promise<void> {
  const tries = await failsAlways(bench, 4)
  assert.deepEqual(
    tries.map(({ attempt }) => attempt),
    [1, 2, 3, 4],
  )
  for (const index of range(3)) {
    const waited = (tries[index + 1]?.at ?? 0) - (tries[index]?.at ?? 0)
    assert.ok(waited >= 30 * 2 ** index - EARLY_MS, `try ${index + 2} came ${waited} ms after the one before`)
  }
}

/** A message that comes back uncounted for ever ends all the same. */
async function interruptLoop(bench: Bench, giveBack: (delivery: Delivery<string>) => Promise<unknown>): Promise<void> {
  const queue = bench.queue({ maxDeliveries: 2 })
  await queue.enqueue('looping')
  let seen = 0
  for (let delivery = await queue.tryReceive(); delivery; delivery = await queue.tryReceive()) {
    seen += 1
    assert.ok(seen <= 6, 'a seventh delivery')
    assert.deepEqual(counts(delivery), ['looping', 1, seen])
    assert.equal(await giveBack(delivery), 'settled')
  }
  assert.equal(seen, 6)
  await statsAre(queue, { dead: 1, enqueuedTotal: 1 })
}

type Failure = (bench: Bench, queue: Queue<string>, leaseMs: number) => Promise<void>

const crash: Failure = async (bench, queue, leaseMs) => {
  const consumer = await doomed(bench, queue, { leaseMs })
  await receive(consumer.queue)
  consumer.kill()
}

/** The ways in which an attempt comes to nothing. */
const FAILURES: Readonly<Record<string, Failure>> = {
  crash,
  requeue: async (_bench, queue) => {
    assert.equal(await (await receive(queue)).requeue({ reason: 'no' }), 'settled')
  },
  'delayed requeue': async (_bench, queue) => {
    assert.equal(await (await receive(queue)).requeue({ reason: 'no', delayMs: 20 }), 'settled')
  },
  fail: async (_bench, queue) => {
    for await (const delivery of pipe(queue.source(), retryLater({ baseMs: 10 }))) {
      assert.equal(await delivery.fail(new Error('no')), 'settled')
      break
    }
  },
  break: async (_bench, queue) => {
    for await (const _ of queue.source()) break
  },
}

/** Dead exactly at the last attempt that is allowed: not one before it, not one after it. */
async function deadAtTheLast(bench: Bench, failure: Failure, maxDeliveries: number): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features)
  const queue = bench.queue({ maxDeliveries, leaseMs })
  await queue.enqueue('x', { id: 'x' })
  for (const _ of range(maxDeliveries - 1)) await failure(bench, queue, leaseMs)
  const last = await receive(queue)
  assert.deepEqual(counts(last), ['x', maxDeliveries, maxDeliveries])
  assert.equal(await last.release(), 'settled', 'the last attempt is one')
  await failure(bench, queue, leaseMs)
  assert.equal((await soon('the end of it', queue.outcome('x'))).state, 'dead')
  assert.equal(await queue.tryReceive(), undefined)
  await statsAre(queue, { dead: 1, enqueuedTotal: 1 })
  const [letter] = await all(queue.deadLetters)
  assert.deepEqual([letter?.id, letter?.attempts], ['x', maxDeliveries])
}

function boundaries(id: string, maxDeliveries: number): Scenario[] {
  return Object.entries(FAILURES).map(([name, failure]) =>
    scenario(
      id,
      `with maxDeliveries ${maxDeliveries} it is dead by ${name} ${maxDeliveries}, and not before`,
      (bench) => deadAtTheLast(bench, failure, maxDeliveries),
    ),
  )
}

/** Requeueing. */
export const requeueing: Concern = {
  name: 'requeueing',
  scenarios: [
    scenario('N35', 'a requeued message comes before the second again, with attempt 2', oldPlace),
    scenario('N35', 'messages requeued in any order come again in their first order', oldPlaces),
    scenario('N35', 'a delay of zero or less is none', nowMeansNow),
    scenario('N36', 'a message requeued with a delay comes at its time, with attempt 2', comesAtItsTime),
    scenario('N36', 'messages whose delay is over have arrived anew, in their priority', arrivesAnew),
    scenario('N36', 'a delayed requeue that does not count keeps the attempt', uncountedStays),
    scenario('N37', 'a handler that always fails is tried after growing delays, and the message dies', hotLoop),
    scenario('N37', 'a message that is released for ever dies', (bench) => interruptLoop(bench, (d) => d.release())),
    scenario('N37', 'a message that is requeued uncounted for ever dies', (bench) =>
      interruptLoop(bench, (d) => d.requeue({ countAttempt: false })),
    ),
    ...boundaries('N38', 1),
    ...boundaries('N39', 3),
  ],
}
