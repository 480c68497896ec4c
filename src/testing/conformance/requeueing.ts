/**
 * Giving back, and giving up after too many attempts: N35 to N39.
 */
import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import { mergeMap } from '../../operators/merge-map.js'
import { retryLater } from '../../operators/retry-later.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { doomed, sweptUntil } from './doomed.js'
import { type Bench, type Concern, scenario } from './kit.js'
import {
  all,
  drainPayloads,
  EARLY_MS,
  now,
  pass,
  range,
  receive,
  SLACK_MS,
  shortLeaseMs,
  soon,
  statsAre,
  until,
} from './wait.js'

/** Gives the first of three back, and looks that it comes first again, with this attempt. */
async function returnsToItsPlace(
  bench: Bench,
  giveBack: (delivery: Delivery<string>) => Promise<unknown>,
  attempt: number,
): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await queue.enqueueAll([{ payload: 'first' }, { payload: 'second' }, { payload: 'third' }])
  const first = await receive(queue)
  const second = await receive(queue)
  assert.equal(await giveBack(second), 'settled')
  assert.equal(await giveBack(first), 'settled')
  await queue.enqueue('fourth')
  for (const payload of ['first', 'second']) {
    const delivery = await receive(peer)
    assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], [payload, attempt, 2])
    assert.equal(await delivery.ack(), 'settled')
  }
  assert.deepEqual(await drainPayloads(queue), ['third', 'fourth'])
}

async function lapsesToItsPlace(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features)
  const queue = bench.queue({ leaseMs })
  const { queue: dying, kill } = await doomed(bench, queue, { leaseMs })
  await queue.enqueueAll([{ payload: 'first' }, { payload: 'second' }, { payload: 'third' }])
  await receive(dying)
  kill()
  await sweptUntil(bench, queue, 'the lapse', ({ ready }) => ready === 3)
  for (const [payload, attempt] of [
    ['first', 2],
    ['second', 1],
    ['third', 1],
  ]) {
    const delivery = await receive(queue)
    assert.deepEqual([delivery.payload, delivery.attempt], [payload, attempt])
  }
}

async function staysWithinItsPriority(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([
    { payload: 'low', priority: 9 },
    { payload: 'high', priority: 1 },
  ])
  const high = await receive(queue)
  assert.equal(await high.requeue(), 'settled')
  assert.deepEqual(await drainPayloads(queue), ['high', 'low'])
}

/** A is given back with a delay; B is ready all the time; C comes after A is due. */
async function delayedReturn(bench: Bench, countAttempt: boolean): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([{ payload: 'A' }, { payload: 'B' }])
  const a = await receive(queue)
  const startedAt = now()
  assert.equal(await a.requeue({ delayMs: 200, countAttempt, reason: 'later' }), 'settled')
  const b = await receive(queue)
  assert.equal(b.payload, 'B')
  if (now() - startedAt < 150) {
    await statsAre(queue, { delayed: 1, claimed: 1 })
    assert.equal(await queue.tryReceive(), undefined)
  }
  const [again, elapsed] = await queue
    .receive({ timeoutMs: 10_000 })
    .then((delivery) => [delivery, now() - startedAt] as const)
  assert.deepEqual([again?.payload, again?.attempt, again?.deliveryCount], ['A', countAttempt ? 2 : 1, 2])
  assert.ok(elapsed >= 200 - EARLY_MS, `too early: after ${elapsed} ms`)
  assert.ok(elapsed < 200 + SLACK_MS, `too late: after ${elapsed} ms`)
}

/** It takes the place of one that arrives when the delay is over, however late anybody looks. */
async function placeAfterDelay(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueue('A')
  const a = await receive(queue)
  await queue.enqueue('B')
  assert.equal(await a.requeue({ delayMs: 60 }), 'settled')
  await pass(150)
  await queue.enqueue('C')
  assert.deepEqual(await drainPayloads(queue), ['B', 'A', 'C'])
}

async function zeroAndLess(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([{ payload: 'A' }, { payload: 'B' }])
  for (const delayMs of [0, -1, -1e9]) {
    const delivery = await receive(queue)
    assert.equal(delivery.payload, 'A')
    assert.equal(await delivery.requeue({ delayMs, countAttempt: false }), 'settled')
    await statsAre(queue, { ready: 2 })
  }
}

async function hotLoop(bench: Bench): Promise<void> {
  const queue = bench.queue({ maxDeliveries: 4 })
  await queue.enqueue('always fails', { id: 'x' })
  const triedAt: number[] = []
  const source = queue.source()
  pipe(
    source,
    retryLater({ baseMs: 40, factor: 2, jitter: 0 }),
    mergeMap((delivery: Delivery<string>) => {
      triedAt.push(now())
      throw new Error(`try ${delivery.attempt}`)
    }, 2),
  ).subscribe()
  assert.deepEqual(await soon('its end', queue.outcome('x')), { state: 'dead', reason: 'Error: try 4' })
  await source.stop()
  assert.equal(triedAt.length, 4)
  for (const [index, wantedMs] of [40, 80, 160].entries()) {
    const gapMs = (triedAt[index + 1] ?? 0) - (triedAt[index] ?? 0)
    assert.ok(gapMs >= wantedMs - EARLY_MS, `try ${index + 2} came after ${gapMs} ms of ${wantedMs} ms`)
  }
  await statsAre(queue, { dead: 1 })
  const [letter] = await all(queue.deadLetters)
  assert.equal(letter?.attempts, 4)
  assert.deepEqual(
    letter?.errors,
    range(4, 1).map((attempt) => `Error: try ${attempt}`),
  )
}

/** How often a message is handed over when whoever gets it always does this. */
async function handOversUntilDead(queue: Queue<string>, treat: (delivery: Delivery<string>) => Promise<unknown>) {
  await queue.enqueue('x')
  const attempts: number[] = []
  for (let delivery = await queue.tryReceive(); delivery; delivery = await queue.tryReceive()) {
    attempts.push(delivery.attempt)
    assert.equal(delivery.deliveryCount, attempts.length)
    assert.ok(attempts.length < 100, 'an endless loop')
    assert.equal(await treat(delivery), 'settled')
  }
  await statsAre(queue, { dead: 1 })
  return attempts
}

async function countedLoop(bench: Bench): Promise<void> {
  const queue = bench.queue({ maxDeliveries: 3 })
  assert.deepEqual(await handOversUntilDead(queue, (delivery) => delivery.requeue({ reason: 'no' })), [1, 2, 3])
  const [letter] = await all(queue.deadLetters)
  assert.deepEqual([letter?.attempts, letter?.deliveryCount, letter?.reason], [3, 3, 'no'])
}

async function uncountedLoop(bench: Bench, treat: (delivery: Delivery<string>) => Promise<unknown>): Promise<void> {
  const queue = bench.queue({ maxDeliveries: 3 })
  assert.deepEqual(await handOversUntilDead(queue, treat), Array(9).fill(1))
}

/** Claims one through a client that then dies. */
async function crashOnce(bench: Bench, queue: Queue<string>, leaseMs: number): Promise<number> {
  const { queue: dying, kill } = await doomed(bench, queue, { leaseMs })
  const { attempt } = await receive(dying)
  kill()
  return attempt
}

async function onlyOneAttempt(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features)
  const queue = bench.queue({ leaseMs, maxDeliveries: 1 })
  await queue.enqueue('x', { id: 'x' })
  assert.equal(await crashOnce(bench, queue, leaseMs), 1)
  assert.equal(await queue.receive({ timeoutMs: leaseMs + 300 }), undefined, 'redelivered')
  await statsAre(queue, { dead: 1 })
  const [letter] = await all(queue.deadLetters)
  assert.deepEqual([letter?.attempts, letter?.deliveryCount, letter?.errors.length], [1, 1, 1])
  assert.equal((await queue.outcome('x', { timeoutMs: 0 })).state, 'dead')
}

/** A waiter in another process is told nothing of it, and keeps waiting. */
async function waiterOutlivesTheDead(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features)
  const queue = bench.queue({ leaseMs, maxDeliveries: 1 })
  await queue.enqueue('x')
  await crashOnce(bench, queue, leaseMs)
  const waiter = queue.receive({ timeoutMs: 10_000 })
  await until('the dead letter', async () => (await queue.stats()).dead === 1)
  await queue.enqueue('y')
  const delivery = await waiter
  assert.deepEqual([delivery?.payload, delivery?.attempt], ['y', 1])
}

/** Two failed attempts of three leave it alive, the third does not; whatever they failed by. */
async function boundary(bench: Bench, failures: readonly ('requeue' | 'fail' | 'crash')[]): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features)
  const queue = bench.queue({ leaseMs, maxDeliveries: failures.length })
  await queue.enqueue('x', { id: 'x' })
  for (const [index, failure] of failures.entries()) {
    await statsAre(queue, { ready: 1 })
    if (failure === 'crash') {
      assert.equal(await crashOnce(bench, queue, leaseMs), index + 1)
      await sweptUntil(bench, queue, 'the lapse', ({ claimed }) => claimed === 0)
      continue
    }
    const delivery = await receive(queue)
    assert.equal(delivery.attempt, index + 1)
    const last = index === failures.length - 1
    // Not the last: that would wait for the default backoff.
    assert.equal(failure === 'fail' && last ? await delivery.fail('no') : await delivery.requeue(), 'settled')
  }
  await statsAre(queue, { dead: 1 })
  const [letter] = await all(queue.deadLetters)
  assert.equal(letter?.attempts, failures.length)
}

const BOUNDARIES = [
  ['requeue', 'requeue', 'requeue'],
  ['requeue', 'requeue', 'fail'],
  ['crash', 'crash', 'crash'],
  ['requeue', 'crash', 'requeue'],
  ['crash', 'requeue', 'crash'],
] as const

/** Messages that come back. */
export const requeueing: Concern = {
  name: 'requeueing',
  scenarios: [
    scenario('N35', 'a requeued message comes before those behind it, with attempt 2', (bench) =>
      returnsToItsPlace(bench, (delivery) => delivery.requeue(), 2),
    ),
    scenario('N35', 'a message requeued uncounted comes before those behind it, with attempt 1', (bench) =>
      returnsToItsPlace(bench, (delivery) => delivery.requeue({ countAttempt: false }), 1),
    ),
    scenario('N35', 'a released message comes before those behind it, with attempt 1', (bench) =>
      returnsToItsPlace(bench, (delivery) => delivery.release(), 1),
    ),
    scenario('N35', 'a lapsed message comes before those behind it, with attempt 2', lapsesToItsPlace),
    scenario('N35', 'a requeued message keeps its priority', staysWithinItsPriority),
    scenario('N36', 'a requeue with a delay is not visible before, and counts', (bench) => delayedReturn(bench, true)),
    scenario('N36', 'an uncounted requeue with a delay keeps its attempt', (bench) => delayedReturn(bench, false)),
    scenario('N36', 'after its delay a message has the place of one that arrived then', placeAfterDelay),
    scenario('N36', 'a delay of zero or less is none', zeroAndLess),
    scenario('N37', 'a handler that always fails is tried maxDeliveries times, ever later, and then no more', hotLoop),
    scenario('N37', 'a loop of requeues ends after maxDeliveries attempts', countedLoop),
    scenario('N37', 'a loop of uncounted requeues ends after three times maxDeliveries', (bench) =>
      uncountedLoop(bench, (delivery) => delivery.requeue({ countAttempt: false })),
    ),
    scenario('N37', 'a loop of releases ends after three times maxDeliveries', (bench) =>
      uncountedLoop(bench, (delivery) => delivery.release()),
    ),
    scenario('N38', 'with maxDeliveries 1 one crash makes a dead letter, and no redelivery', onlyOneAttempt),
    scenario('N38', 'a waiter does not see the message that died', waiterOutlivesTheDead),
    ...BOUNDARIES.map((failures) =>
      scenario('N39', `of three attempts (${failures.join(', ')}) the third is the last`, (bench) =>
        boundary(bench, failures),
      ),
    ),
  ],
}
