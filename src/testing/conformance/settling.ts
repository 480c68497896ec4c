/**
 * Settling, by a handler or by hand, once and no more: N18 to N23.
 */
import assert from 'node:assert/strict'
import { of, throwError } from 'rxjs'
import type { Delivery, Settlement } from '../../delivery.js'
import { LeaseLostError } from '../../errors.js'
import { deadLetter } from '../../operators/dead-letter.js'
import { mergeMap } from '../../operators/merge-map.js'
import { retryLater } from '../../operators/retry-later.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { drain } from '../../sinks/drain.js'
import { run } from '../../sinks/run.js'
import { doomed, stopRenewing } from './doomed.js'
import { type Bench, type Concern, type Scenario, scenario } from './kit.js'
import { all, callsOf, receive, SLACK_MS, shortLeaseMs, soon, statsAre, turn, until, within } from './wait.js'

/** The ways in which a handler fails. */
const FAILURES: Readonly<Record<string, (error: Error) => unknown>> = {
  'that throws': (error) => {
    throw error
  },
  'whose promise rejects': (error) => Promise.reject(error),
  'whose Observable fails': (error) => throwError(() => error),
  'whose iterable fails': (error) => failingIterable(error),
}

async function* failingIterable(error: Error): AsyncGenerator<string> {
  yield 'a value before the failure'
  throw error
}

/** One of five messages fails at its first attempt; the others never see anything of it. */
async function failsOnce(bench: Bench, fail: (error: Error) => unknown): Promise<void> {
  const queue = bench.queue()
  const payloads = ['a', 'b', 'bad', 'c', 'd']
  await queue.enqueueAll(payloads.map((payload) => ({ payload })))
  const calls: [string, number][] = []
  let finish = () => {}
  const finished = new Promise<void>((resolve) => {
    finish = resolve
  })
  const handler = (delivery: Delivery<string>) => {
    calls.push([delivery.payload, delivery.attempt])
    if (calls.length === 6) finish()
    assert.equal(delivery.signal.aborted, false)
    return delivery.payload === 'bad' && delivery.attempt === 1 ? fail(new Error('once')) : of('done')
  }
  const controller = new AbortController()
  const running = run(pipe(queue.source(), retryLater({ baseMs: 20, jitter: 0 }), mergeMap(handler, 5)), {
    signal: controller.signal,
  })
  await soon('six handler calls', finished)
  await until('all acked', async () => (await queue.stats()).ackedTotal === 5)
  controller.abort()
  const summary = await running
  assert.deepEqual([summary.acked, summary.requeued, summary.deadLettered, summary.lost], [5, 1, 0, 0])
  assert.deepEqual(calls, [...payloads.map((payload) => [payload, 1]), ['bad', 2]])
  await statsAre(queue, { ackedTotal: 5, enqueuedTotal: 5 })
}

async function deadLettersByPolicy(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([{ payload: 'good' }, { payload: 'bad' }, { payload: 'good' }])
  const handler = ({ payload }: Delivery<string>) => {
    if (payload === 'bad') throw new TypeError('hopeless')
  }
  const summary = await drain(
    pipe(
      queue.source(),
      retryLater({}),
      deadLetter({ when: (error) => error instanceof TypeError }),
      mergeMap(handler, 3),
    ),
  )
  assert.deepEqual([summary.acked, summary.deadLettered, summary.requeued], [2, 1, 0])
  await statsAre(queue, { dead: 1, ackedTotal: 2 })
  const [letter] = await all(queue.deadLetters)
  assert.deepEqual([letter?.payload, letter?.attempts, letter?.reason], ['bad', 1, 'TypeError: hopeless'])
}

/** With no policy a failure is requeued later, and the lane is free at once. */
async function requeuesByDefault(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([{ payload: 'bad' }, { payload: 'good' }])
  const seen: string[] = []
  const handler = ({ payload }: Delivery<string>) => {
    seen.push(payload)
    if (payload === 'bad') throw new Error('not now')
  }
  await drain(pipe(queue.source(), mergeMap(handler, 1)))
  assert.deepEqual(seen, ['bad', 'good'])
  await statsAre(queue, { delayed: 1, ackedTotal: 1 })
  const [waiting] = await all(queue.peek({ state: 'delayed' }))
  assert.deepEqual([waiting?.payload, waiting?.attempt], ['bad', 2])
}

/** One claim is lost while its handler runs; what the handler then does must not touch the new owner's claim. */
async function failsAfterLoss(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features)
  const owner = bench.queue({ leaseMs })
  const { queue, client } = await doomed(bench, owner, { leaseMs })
  await owner.enqueue('job', { id: 'job' })
  stopRenewing(client)
  let lost: unknown
  let start = () => {}
  const started = new Promise<void>((resolve) => {
    start = resolve
  })
  let redeliver = () => {}
  const redelivered = new Promise<void>((resolve) => {
    redeliver = resolve
  })
  const source = queue.source()
  const running = run(
    pipe(
      source,
      retryLater({ baseMs: 0 }),
      mergeMap(async ({ signal }: Delivery<string>) => {
        start()
        await until('the loss of the lease', () => signal.aborted)
        lost = signal.reason
        await redelivered
        throw new Error('too late')
      }, 1),
    ),
  )
  await soon('the handler', started)
  const second = await receive(owner, leaseMs * 2 + SLACK_MS)
  assert.deepEqual([second.payload, second.attempt, second.deliveryCount], ['job', 2, 2])
  redeliver()
  await until('the loss', () => lost !== undefined)
  assert.ok(lost instanceof LeaseLostError, `the signal's reason is ${String(lost)}`)
  await within(SLACK_MS * 2, 'stop()', source.stop())
  const summary = await soon('run()', running)
  assert.deepEqual([summary.lost, summary.requeued, summary.acked], [1, 0, 0])
  assert.equal(callsOf(client, 'settle'), 0, 'a settlement was sent for a claim that was lost')
  await statsAre(owner, { claimed: 1 })
  assert.equal(await second.ack(), 'settled')
  await statsAre(owner, { ackedTotal: 1 })
}

async function ackTwice(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
  const delivery = await receive(queue)
  assert.equal(await delivery.ack('first'), 'settled')
  assert.equal(await delivery.ack('second'), 'already-settled')
  assert.deepEqual(await queue.outcome(delivery.id, { timeoutMs: 0 }), { state: 'done', result: 'first' })
  const other = await receive(queue)
  assert.deepEqual(await Promise.all([other.ack(), other.ack(), other.ack()]), [
    'settled',
    'already-settled',
    'already-settled',
  ])
  assert.equal(callsOf(bench.backend, 'settle'), 2, 'a second ack is not sent')
  await statsAre(queue, { ackedTotal: 2 })
}

type Verb = 'ack' | 'requeue' | 'deadLetter' | 'release' | 'fail'

const VERBS: Readonly<Record<Verb, (delivery: Delivery<string>) => Promise<Settlement>>> = {
  ack: (delivery) => delivery.ack(),
  requeue: (delivery) => delivery.requeue(),
  deadLetter: (delivery) => delivery.deadLetter('why'),
  release: (delivery) => delivery.release(),
  fail: (delivery) => delivery.fail(new Error('failed')),
}

/** Where the message is after each verb alone. */
const AFTER: Readonly<Record<Verb, Parameters<typeof statsAre>[1]>> = {
  ack: { ackedTotal: 1 },
  requeue: { ready: 1 },
  deadLetter: { dead: 1 },
  release: { ready: 1 },
  fail: { delayed: 1 },
}

async function firstSettlementCounts(bench: Bench, first: Verb, second: Verb, together: boolean): Promise<void> {
  const queue = bench.queue()
  await queue.enqueue('x')
  const delivery = await receive(queue)
  const one = VERBS[first](delivery)
  if (!together) assert.equal(await one, 'settled')
  const two = VERBS[second](delivery)
  assert.deepEqual([await one, await two], ['settled', 'already-settled'], `${first}, then ${second}`)
  await statsAre(queue, AFTER[first])
}

function pairs(): Scenario[] {
  const verbs = Object.keys(VERBS) as Verb[]
  return verbs.map((first) =>
    scenario('N21', `after ${first} every other settlement loses, with a value`, async (bench) => {
      for (const second of verbs) {
        await firstSettlementCounts(bench, first, second, false)
        await firstSettlementCounts(bench, first, second, true)
      }
    }),
  )
}

/** A delivery whose lease lapsed unnoticed, and the one that replaced it. */
async function lapsed(bench: Bench, claimAgain: 'another' | 'the same') {
  const leaseMs = shortLeaseMs(bench.features)
  const other = bench.queue({ leaseMs, consumer: 'worker' })
  const { queue, client } = await doomed(bench, other, { leaseMs, consumer: 'worker' })
  await other.enqueue('job')
  stopRenewing(client)
  const old = await receive(queue)
  const holder: Queue<string> = claimAgain === 'another' ? other : queue
  const current = await receive(holder, leaseMs * 2 + SLACK_MS)
  assert.deepEqual([current.payload, current.attempt, current.deliveryCount], ['job', 2, 2])
  assert.ok(current.fence > old.fence, 'the fence rises')
  return { old, current, queue: other, leaseMs }
}

async function settlesTooLate(bench: Bench, claimAgain: 'another' | 'the same'): Promise<void> {
  const { old, current, queue } = await lapsed(bench, claimAgain)
  assert.equal(old.settled, true)
  assert.equal(old.signal.aborted, true)
  assert.equal(await old.extend(60_000), 'stale')
  for (const settle of Object.values(VERBS)) assert.equal(await settle(old), 'stale')
  await statsAre(queue, { claimed: 1 })
  const [listed] = await all(queue.peek({ state: 'claimed' }))
  assert.deepEqual([listed?.attempt, listed?.deliveryCount], [2, 2])
  assert.equal(current.settled, false)
  assert.equal(await current.ack(), 'settled')
  await statsAre(queue, { ackedTotal: 1 })
}

/** The claim is taken away in the store while the handle still thinks that it is live: the store has to compare. */
async function storeCompares(bench: Bench): Promise<void> {
  for (const [verb, settle] of Object.entries(VERBS)) {
    const queue = bench.queue({ consumer: 'worker', retention: { maxOutcomes: 0 } })
    await queue.enqueue('old', { id: 'job' })
    const old = await receive(queue)
    assert.equal(await queue.purge({ state: 'claimed' }), 1)
    assert.equal((await queue.enqueue('new', { id: 'job' })).status, 'enqueued')
    const current = await receive(queue)
    assert.deepEqual([current.id, current.payload, current.attempt], ['job', 'new', 1])
    assert.equal(await settle(old), 'stale', `${verb} of the old claim`)
    await turn()
    await statsAre(queue, { claimed: 1, purgedTotal: 1 })
    assert.equal(old.signal.aborted, true)
    assert.equal(current.signal.aborted, false)
    assert.equal(await current.ack(), 'settled')
  }
}

/** Settlements. */
export const settling: Concern = {
  name: 'settling',
  scenarios: [
    ...Object.entries(FAILURES).map(([name, fail]) =>
      scenario('N18', `a handler ${name} is retried with its attempt told, and disturbs no other`, (bench) =>
        failsOnce(bench, fail),
      ),
    ),
    scenario('N18', 'a handler that fails for good goes to the dead letters by policy', deadLettersByPolicy),
    scenario('N18', 'without a policy a failure waits, and the next message has its turn', requeuesByDefault),
    scenario('N19', 'a handler that fails after it lost its lease sends nothing', failsAfterLoss),
    scenario('N20', 'a second ack answers already-settled and does nothing', ackTwice),
    ...pairs(),
    scenario(
      'N22',
      'a settlement after redelivery to another consumer is stale and leaves the new claim alone',
      (bench) => settlesTooLate(bench, 'another'),
    ),
    scenario(
      'N23',
      'a settlement after redelivery to the same consumer is stale and leaves the new claim alone',
      (bench) => settlesTooLate(bench, 'the same'),
    ),
    scenario('N23', 'the store itself compares the claim, not the id or the consumer', storeCompares),
  ],
}
