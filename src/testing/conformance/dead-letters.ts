/**
 * What could not be handled: N43 to N46.
 */
import assert from 'node:assert/strict'
import type { DeadLetter } from '../../core/dead-letters.js'
import type { Entry, Queue } from '../../queue.js'
import { doomed } from './doomed.js'
import { type Bench, type Concern, scenario } from './kit.js'
import {
  all,
  assertConserved,
  callsOf,
  drainPayloads,
  parked,
  range,
  receive,
  SLACK_MS,
  shortLeaseMs,
  soon,
  statsAre,
  within,
} from './wait.js'

/** Enqueues them and gives up each. */
async function bury(queue: Queue<string>, entries: readonly Entry<string>[], reason: unknown = 'no'): Promise<void> {
  await queue.enqueueAll(entries)
  for (const _ of entries) assert.equal(await (await receive(queue)).deadLetter(reason), 'settled')
}

async function lettersOf(queue: Queue<string>): Promise<string[]> {
  return (await all(queue.deadLetters)).map(({ id }) => id)
}

async function requeuesAfresh(bench: Bench): Promise<void> {
  const queue = bench.queue({ maxDeliveries: 2 })
  const message = { payload: 'a', id: 'a', priority: 3, key: 'k', headers: { h: 'v' } }
  await queue.enqueueAll([message, { payload: 'older', priority: 3 }])
  for (const _ of range(2)) await (await receive(queue)).requeue({ reason: 'no' })
  assert.deepEqual(await lettersOf(queue), ['a'])
  assert.equal(await queue.deadLetters.requeue('a'), true)
  assert.equal(await queue.deadLetters.requeue('a'), false)
  assert.deepEqual(await lettersOf(queue), [])
  await statsAre(queue, { ready: 2, enqueuedTotal: 2 })
  assert.equal((await receive(queue)).payload, 'older', 'it has arrived anew')
  const again = await receive(queue)
  const { id, payload, priority, key, attempt, deliveryCount, headers } = again
  assert.deepEqual({ id, payload, priority, key, headers: { ...headers } }, message)
  assert.deepEqual([attempt, deliveryCount], [1, 1])
  assert.equal(await again.requeue(), 'settled', 'it has all its attempts again')
  assert.equal((await receive(queue)).attempt, 2)
}

/** Its old failures are gone with its old life. */
async function diesAnew(bench: Bench): Promise<void> {
  const queue = bench.queue({ maxDeliveries: 2 })
  await bury(queue, [{ payload: 'a', id: 'a' }], 'first life')
  assert.equal((await queue.outcome('a')).state, 'dead')
  assert.equal(await queue.deadLetters.requeue('a'), true)
  assert.deepEqual(await queue.outcome('a', { timeoutMs: 0 }), { state: 'pending' })
  await (await receive(queue)).requeue({ reason: 'second life' })
  await (await receive(queue)).requeue({ reason: 'the end' })
  const [letter, ...others] = await all(queue.deadLetters)
  assert.deepEqual(others, [])
  assert.deepEqual([letter?.attempts, letter?.deliveryCount, letter?.reason], [2, 2, 'the end'])
  assert.deepEqual(letter?.errors.slice(-2), ['second life', 'the end'])
  assert.deepEqual(await queue.outcome('a'), { state: 'dead', reason: 'the end' })
}

async function oneRequeueWins(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peers = [queue, await bench.peer(queue), await bench.peer(queue)]
  const ids = range(10).map((n) => `m${n}`)
  await bury(
    queue,
    ids.map((id) => ({ payload: id, id })),
  )
  for (const id of ids) {
    const calls = range(9).map((n) => peers[n % 3]?.deadLetters.requeue(id))
    assert.equal((await soon('every call', Promise.all(calls))).filter(Boolean).length, 1)
  }
  await statsAre(queue, { ready: 10, enqueuedTotal: 10 })
  assert.deepEqual(await drainPayloads(queue), ids)
}

async function requeueOrPurge(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  for (const n of range(20)) {
    const id = `m${n}`
    await bury(queue, [{ payload: id, id }])
    const requeue = () => queue.deadLetters.requeue(id)
    const purge = () => peer.deadLetters.purge(id)
    const calls = n % 2 === 0 ? [requeue(), purge()] : [purge(), requeue()]
    assert.deepEqual((await soon('both calls', Promise.all(calls))).sort(), [false, true])
    const { dead, ready } = await queue.stats()
    assert.deepEqual([dead, ready <= 1], [0, true])
    await drainPayloads(queue)
  }
  const stats = await queue.stats()
  assertConserved(stats)
  assert.equal(stats.ackedTotal + stats.purgedTotal, 20)
}

async function wakesWaiters(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await bury(queue, [{ payload: 'a', id: 'a' }])
  const backend = await bench.client()
  const peer = await bench.peer(queue, { backend })
  const { waiting } = await parked(backend, () => ({ waiting: receive(peer) }))
  assert.equal(await queue.deadLetters.requeue('a'), true)
  assert.equal((await within(SLACK_MS, 'the delivery', waiting)).payload, 'a')
}

async function purgesForGood(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await bury(queue, [
    { payload: 'a', id: 'a' },
    { payload: 'b', id: 'b' },
  ])
  assert.equal(await queue.deadLetters.purge('nobody'), false)
  assert.equal(await queue.deadLetters.purge('a'), true)
  assert.equal(await peer.deadLetters.purge('a'), false)
  assert.equal(await peer.deadLetters.requeue('a'), false)
  assert.deepEqual(await lettersOf(peer), ['b'])
  assert.equal(await queue.tryReceive(), undefined)
  await statsAre(queue, { dead: 1, purgedTotal: 1, enqueuedTotal: 2 })
  assert.equal(await peer.deadLetters.purge('b'), true)
  assert.deepEqual((await bench.leftovers(queue)) ?? [], [])
  assert.deepEqual(await queue.enqueue('new', { id: 'a' }), { id: 'a', status: 'enqueued' })
  const fresh = await receive(queue)
  assert.deepEqual([fresh.payload, fresh.attempt, fresh.deliveryCount], ['new', 1, 1])
}

/** Only what is dead: a message in another state is no dead letter, whatever its id. */
async function onlyTheDead(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueueAll([
    { payload: 'claimed', id: 'claimed' },
    { payload: 'ready', id: 'ready' },
    { payload: 'delayed', id: 'delayed', delayMs: 60_000 },
  ])
  const claimed = await receive(queue)
  for (const id of ['claimed', 'ready', 'delayed', 'nobody']) {
    assert.equal(await queue.deadLetters.purge(id), false, `purge of ${id}`)
    assert.equal(await queue.deadLetters.requeue(id), false, `requeue of ${id}`)
  }
  await statsAre(queue, { claimed: 1, ready: 1, delayed: 1 })
  assert.equal(await claimed.ack(), 'settled')
  assert.equal(await queue.deadLetters.requeue('claimed'), false, 'what is acked is not dead')
}

const MESSAGE = { payload: 'a', id: 'a', priority: 9, key: 'k', headers: { trace: 'x' } }

/** The ways of dying, and what the letter says of each after two attempts. */
const DEATHS: Readonly<Record<string, (bench: Bench, queue: Queue<string>) => Promise<RegExp>>> = {
  'by hand': async (_bench, queue) => {
    await (await receive(queue)).deadLetter(new RangeError('too far'))
    return /^RangeError: too far$/
  },
  'by its last requeue': async (_bench, queue) => {
    await (await receive(queue)).requeue({ reason: new TypeError('wrong') })
    return /^TypeError: wrong$/
  },
  'by a lapse': async (bench, queue) => {
    const consumer = await doomed(bench, queue, { leaseMs: shortLeaseMs(bench.features) })
    await receive(consumer.queue)
    consumer.kill()
    await soon('the lapse', queue.outcome('a'))
    return /./
  },
}

async function keepsEverything(bench: Bench, how: string): Promise<void> {
  const die = DEATHS[how] ?? assert.fail(how)
  const queue = bench.queue({ maxDeliveries: 2, leaseMs: shortLeaseMs(bench.features) })
  await queue.enqueueAll([MESSAGE])
  const first = await receive(queue)
  assert.equal(await first.requeue({ reason: 'the first failure' }), 'settled')
  const reason = await die(bench, queue)
  const [letter, ...others] = await all((await bench.peer(queue)).deadLetters)
  assert.ok(letter)
  assert.deepEqual(others, [])
  const { id, payload, priority, key, headers, attempts, deliveryCount } = letter
  assert.deepEqual({ id, payload, priority, key, headers: { ...headers } }, MESSAGE)
  assert.deepEqual([attempts, deliveryCount], [2, 2])
  assert.match(letter.reason, reason)
  assert.deepEqual(letter.errors, ['the first failure', letter.reason])
  assertTimes(letter, first.enqueuedAt)
  assert.equal(Buffer.from(letter.bytes).toString(), '"a"')
}

/** The first and the last instant of the message, by the store's one clock. */
function assertTimes({ enqueuedAt, deadAt }: DeadLetter<string>, wanted: number): void {
  assert.equal(enqueuedAt, wanted)
  assert.ok(deadAt >= enqueuedAt, `dead at ${deadAt}, enqueued at ${enqueuedAt}`)
  assert.ok(deadAt - enqueuedAt < 60_000, `dead at ${deadAt}, enqueued at ${enqueuedAt}`)
}

/** Ten are kept, the last ones; and the letters of one queue are not those of another. */
async function keepsTheLastTen(bench: Bench): Promise<void> {
  const queue = bench.queue({ maxDeliveries: 12 })
  const other = bench.queue()
  await queue.enqueue('a', { id: 'a' })
  await bury(other, [{ payload: 'b', id: 'a' }])
  for (const n of range(12, 1)) await (await receive(queue)).requeue({ reason: `failure ${n}` })
  const [letter, ...others] = await all(queue.deadLetters)
  assert.deepEqual(others, [])
  assert.deepEqual([letter?.payload, letter?.attempts, letter?.reason], ['a', 12, 'failure 12'])
  assert.deepEqual(
    letter?.errors,
    range(10, 3).map((n) => `failure ${n}`),
  )
  assert.equal(await other.deadLetters.purge('a'), true)
  assert.deepEqual(await lettersOf(queue), ['a'])
}

const MANY = 10_000

/** Ten thousand, that die together. */
async function manyDead(bench: Bench): Promise<Queue<string>> {
  const queue = bench.queue()
  const size = Math.min(1_000, bench.features.maxBatch)
  const ids = range(MANY).map((n) => `m${n}`)
  for (let from = 0; from < MANY; from += size) {
    await queue.enqueueAll(ids.slice(from, from + size).map((id) => ({ id, payload: id })))
  }
  let iterator: AsyncIterator<unknown> | undefined
  const buried: Promise<unknown>[] = []
  const source = queue.source({ credit: 500, until: 'empty' })
  await soon(
    'the end of the source',
    new Promise<void>((complete, error) => {
      source.subscribe({ next: (delivery) => void buried.push(delivery.deadLetter('no')), complete, error })
    }),
  )
  await iterator?.return?.()
  await Promise.all(buried)
  return queue
}

async function listsInPages(bench: Bench): Promise<void> {
  const queue = await manyDead(bench)
  await statsAre(queue, { dead: MANY, enqueuedTotal: MANY })
  const before = bench.backend.calls.length
  const ids = await soon('the listing', lettersOf(queue))
  const reads = bench.backend.calls.length - before
  assert.equal(ids.length, MANY)
  assert.equal(new Set(ids).size, MANY)
  assert.ok(reads <= MANY / 100 + 2, `${reads} reads for ${MANY} entries`)
  assert.equal(callsOf(bench.backend, 'deadLetters'), reads, 'nothing is read but pages')
  await leftEarly(bench, queue)
  assert.equal(await queue.deadLetters.purgeAll(), MANY)
  await statsAre(queue, { purgedTotal: MANY, enqueuedTotal: MANY })
}

async function leftEarly(bench: Bench, queue: Queue<string>): Promise<void> {
  const before = callsOf(bench.backend, 'deadLetters')
  let seen = 0
  for await (const _ of queue.deadLetters) if (++seen === 5) break
  assert.equal(callsOf(bench.backend, 'deadLetters'), before + 1, 'a loop that is left reads one page')
}

/** Dead letters. */
export const deadLetters: Concern = {
  name: 'dead letters',
  scenarios: [
    scenario('N43', 'a requeued dead letter starts afresh: attempt 1, a new arrival, the list empty', requeuesAfresh),
    scenario('N43', 'a requeued dead letter that dies again is told by its new life', diesAnew),
    scenario('N43', 'of concurrent requeues of one dead letter one is true', oneRequeueWins),
    scenario('N43', 'of a requeue and a purge of one dead letter one is true', requeueOrPurge),
    scenario('N43', 'a requeued dead letter reaches a waiter', wakesWaiters),
    scenario('N44', 'a purged dead letter is gone for good and its id is free; an unknown id is false', purgesForGood),
    scenario('N44', 'a message that is not dead is no dead letter', onlyTheDead),
    ...Object.keys(DEATHS).map((how) =>
      scenario('N46', `a message that died ${how} keeps all that is known of it`, (bench) =>
        keepsEverything(bench, how),
      ),
    ),
    scenario('N46', 'a dead letter keeps its last ten failures, in its own queue', keepsTheLastTen),
    scenario('N46', 'ten thousand dead letters are listed page by page, in no more reads than pages', listsInPages),
  ],
}
