/**
 * What enqueueing promises, alone and in batches: N28 to N32, N34.
 */
import assert from 'node:assert/strict'
import { InvalidOptionError, LimitError, QueueFullError } from '../../errors.js'
import type { Enqueued, Entry, Queue } from '../../queue.js'
import type { FaultKind } from '../faulty-backend.js'
import { type Bench, type Concern, scenario } from './kit.js'
import {
  assertConserved,
  callsOf,
  drainPayloads,
  idsIn,
  range,
  receive,
  SLACK_MS,
  soon,
  statsAre,
  within,
} from './wait.js'

const LOSSES: readonly FaultKind[] = ['fail-reply', 'drop-reply']

const ENQUEUES: Readonly<Record<string, (queue: Queue<string>) => Promise<Enqueued[]>>> = {
  'with an id': async (queue) => [await queue.enqueue('a', { id: 'a' })],
  'without an id': async (queue) => [await queue.enqueue('a')],
  'of a batch': (queue) => queue.enqueueAll([named('a'), named('b'), { payload: 'c' }]),
}

/** An entry whose payload is its id. */
function named(id: string): Entry<string> {
  return { id, payload: id }
}

function statuses(answers: readonly Enqueued[]): string[] {
  return answers.map(({ status }) => status)
}

/** Each loss on a queue of its own, all at once, since a silent call is given some seconds before it is sent again. */
async function repliesLost(bench: Bench): Promise<void> {
  const checks = LOSSES.flatMap((kind) => Object.keys(ENQUEUES).map((name) => storesOnce(bench, kind, name)))
  await soon('every enqueue', Promise.all(checks))
}

async function storesOnce(bench: Bench, kind: FaultKind, name: string): Promise<void> {
  const backend = await bench.client()
  const queue = bench.queue({ backend })
  await queue.stats()
  const fault = backend.inject({ verb: 'enqueue', kind })
  const answers = await (ENQUEUES[name] ?? assert.fail(name))(queue)
  await soon('the fault', fault.reached)
  assert.equal(callsOf(backend, 'enqueue'), 2, `${kind} ${name}: it is asked again`)
  assert.ok(
    answers.every(({ status }) => status === 'enqueued'),
    `${kind} ${name}: answered as the first time`,
  )
  await statsAre(queue, { ready: answers.length, enqueuedTotal: answers.length })
}

/** The caller that gave up by itself, or a process that starts anew, says the same id once more. */
async function storesOnceByHand(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.stats()
  const peer = await bench.peer(queue)
  const fault = bench.backend.inject({ verb: 'enqueue', kind: 'hold-reply', times: Number.POSITIVE_INFINITY })
  const controller = new AbortController()
  const enqueued = queue.enqueue('a', { id: 'a', signal: controller.signal })
  await soon('the message is stored', fault.reached)
  controller.abort()
  await assert.rejects(enqueued, { name: 'AbortError' })
  fault.remove()
  const backend = await bench.client()
  const again = await bench.peer(queue, { backend })
  assert.deepEqual(await again.enqueue('b', { id: 'a' }), { id: 'a', status: 'duplicate' })
  fault.release()
  await statsAre(peer, { ready: 1, enqueuedTotal: 1 })
  assert.deepEqual(await drainPayloads(peer), ['a'])
}

async function isDuplicate(queue: Queue<string>, state: string): Promise<void> {
  const { enqueuedTotal } = await queue.stats()
  assert.deepEqual(await queue.enqueue('other', { id: 'a' }), { id: 'a', status: 'duplicate' }, `while ${state}`)
  assert.equal((await queue.stats()).enqueuedTotal, enqueuedTotal, `nothing is stored while ${state}`)
}

/** The states of one id: what it answers in each. */
async function duplicateInEveryState(bench: Bench): Promise<void> {
  const queue = bench.queue()
  assert.deepEqual(await queue.enqueue('first', { id: 'a', delayMs: 50 }), { id: 'a', status: 'enqueued' })
  await isDuplicate(queue, 'delayed')
  const claimed = await receive(queue)
  await isDuplicate(queue, 'claimed')
  assert.equal(await claimed.release(), 'settled')
  await isDuplicate(queue, 'ready')
  assert.equal(await (await receive(queue)).deadLetter('no'), 'settled')
  await isDuplicate(queue, 'dead')
  assert.equal(await queue.deadLetters.requeue('a'), true)
  const last = await receive(queue)
  assert.equal(last.payload, 'first')
  assert.equal(await last.ack(), 'settled')
  await isDuplicate(queue, 'its outcome is retained')
  await statsAre(queue, { enqueuedTotal: 1, ackedTotal: 1 })
}

async function freeAgain(bench: Bench, end: (queue: Queue<string>) => Promise<unknown>): Promise<void> {
  const queue = bench.queue({ retention: { maxOutcomes: 0 } })
  await queue.enqueue('first', { id: 'a' })
  await end(queue)
  assert.deepEqual(await queue.enqueue('second', { id: 'a' }), { id: 'a', status: 'enqueued' })
  const delivery = await receive(queue)
  assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['second', 1, 1])
  assertConserved(await queue.stats())
}

const ENDS: Readonly<Record<string, (queue: Queue<string>) => Promise<unknown>>> = {
  'that was acked, and whose outcome is not kept,': async (queue) => (await receive(queue)).ack(),
  'that was purged from the dead letters': async (queue) => {
    await (await receive(queue)).deadLetter('no')
    assert.equal(await queue.deadLetters.purge('a'), true)
  },
}

async function fiftyCallers(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peers = [queue, await bench.peer(queue), await bench.peer(queue)]
  const answers = await soon(
    'every caller',
    Promise.all(range(50).map((n) => peers[n % peers.length]?.enqueue(`from ${n}`, { id: 'a' }))),
  )
  const stored = range(50).filter((n) => answers[n]?.status === 'enqueued')
  assert.equal(stored.length, 1)
  assert.ok(answers.every((answer) => answer?.id === 'a'))
  await statsAre(queue, { ready: 1, enqueuedTotal: 1 })
  assert.deepEqual(await drainPayloads(queue), [`from ${stored[0]}`])
}

async function duplicatesInBatch(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueue('old', { id: 'b' })
  const answers = await queue.enqueueAll([named('a'), named('b'), { payload: 'other', id: 'a' }, named('c')])
  assert.deepEqual(statuses(answers), ['enqueued', 'duplicate', 'duplicate', 'enqueued'])
  assert.deepEqual(await drainPayloads(queue), ['old', 'a', 'c'])
}

/** A third entry that cannot be stored, for another reason each. */
const UNSTORABLE: Readonly<Record<string, readonly [Partial<Entry<unknown>>, new (...args: never[]) => Error]>> = {
  'is too large': [{ payload: 'x'.repeat(2_000) }, LimitError],
  'has a priority of 1.5': [{ payload: 'c', priority: 1.5 }, InvalidOptionError],
  'has an unknown option': [{ payload: 'c', urgent: true } as Partial<Entry<unknown>>, InvalidOptionError],
  'would be one too many': [{ payload: 'c' }, QueueFullError],
  'cannot be encoded': [{ payload: 10n }, Error],
}

async function allOrNothing(bench: Bench, why: string): Promise<void> {
  const [third, error] = UNSTORABLE[why] ?? assert.fail(why)
  const limits = { maxPayloadBytes: 1_000, ...(error === QueueFullError && { maxLength: 2 }) }
  const queue = bench.queue<unknown>({ limits })
  const entries = [{ payload: 'a', id: 'a' }, { payload: 'b' }, { payload: 'c', ...third }]
  await assert.rejects(queue.enqueueAll(entries), error)
  await statsAre(queue, { enqueuedTotal: 0 })
  assert.equal(await queue.tryReceive(), undefined)
  assert.equal((await queue.enqueue('a', { id: 'a' })).status, 'enqueued', 'the id of a refused entry is free')
}

/** Whoever looks while batches of three come in sees a multiple of three. */
async function neverSeenInPart(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  const sizes: number[] = []
  let busy = true
  const watching = (async () => {
    while (busy) sizes.push((await peer.stats()).ready)
  })()
  for (const _ of range(30)) await queue.enqueueAll(range(3).map((n) => ({ payload: `${n}` })))
  busy = false
  await soon('the watcher', watching)
  assert.ok(sizes.length > 0)
  assert.deepEqual(
    sizes.filter((size) => size % 3 !== 0),
    [],
  )
  await statsAre(queue, { ready: 90, enqueuedTotal: 90 })
}

async function nothingIsNoIo(bench: Bench): Promise<void> {
  const queue = bench.queue()
  assert.deepEqual(await queue.enqueueAll([]), [])
  assert.deepEqual(bench.backend.calls, [])
}

async function keepsBatchOrder(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  const older = ['older 1', 'older 2', 'older 3']
  for (const payload of older) await queue.enqueue(payload)
  const batch = range(40).map((n) => `batch ${n}`)
  const answers = await queue.enqueueAll(batch.map(named))
  assert.deepEqual(
    answers,
    batch.map((id) => ({ id, status: 'enqueued' })),
  )
  await peer.enqueue('newer')
  assert.deepEqual(await idsIn(queue, 'ready').then((ids) => ids.slice(3, 43)), batch)
  assert.deepEqual(await drainPayloads(peer), [...older, ...batch, 'newer'])
}

async function overTheCount(bench: Bench): Promise<void> {
  const { maxBatch } = bench.features
  if (!Number.isFinite(maxBatch)) return
  const queue = bench.queue<number>()
  await assert.rejects(
    queue.enqueueAll(range(maxBatch + 1).map((payload) => ({ payload }))),
    (error) => error instanceof LimitError && error.limit === 'maxBatch' && error.maximum === maxBatch,
  )
  await statsAre(queue, { enqueuedTotal: 0 })
  if (maxBatch > 10_000) return
  const answers = await queue.enqueueAll(range(maxBatch).map((payload) => ({ payload })))
  assert.equal(answers.length, maxBatch)
  await statsAre(queue, { ready: maxBatch, enqueuedTotal: maxBatch })
}

/** Batches of the sizes at which stores break: all of it, or an error that names the limit and none of it. */
async function wholeOrRefused(bench: Bench): Promise<void> {
  for (const size of [127, 128, 129, 1_000]) {
    const queue = bench.queue<number>()
    const entries = range(size).map((payload) => ({ payload }))
    if (size <= bench.features.maxBatch) {
      await queue.enqueueAll(entries)
      assert.deepEqual(await drainPayloads(queue), range(size))
    } else {
      await assert.rejects(queue.enqueueAll(entries), LimitError)
      await statsAre(queue, { enqueuedTotal: 0 })
    }
  }
}

async function overTheBytes(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const large = 'x'.repeat(2 * 1_048_576)
  const named = (error: unknown) => error instanceof LimitError && /maxPayloadBytes|maxBatchBytes/.test(error.message)
  await assert.rejects(queue.enqueue(large, { id: 'large' }), named)
  await assert.rejects(queue.enqueueAll([{ payload: 'small' }, { payload: large }]), named)
  await statsAre(queue, { enqueuedTotal: 0 })
  assert.equal((await queue.enqueue('small', { id: 'large' })).status, 'enqueued')
}

/** The clock of this process is wrong by so much while the work runs. */
async function withClockOff<R>(offMs: number, work: () => Promise<R>): Promise<R> {
  const right = Date.now
  Date.now = () => right() + offMs
  try {
    return await work()
  } finally {
    Date.now = right
  }
}

const MINUTE_MS = 60_000

async function clockJumpsBack(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await queue.enqueue('1')
  await withClockOff(10 * MINUTE_MS, () => peer.enqueue('2'))
  await withClockOff(-60 * MINUTE_MS, () => queue.enqueueAll([{ payload: '3' }, { payload: '4' }]))
  await withClockOff(-10 * MINUTE_MS, () => peer.enqueue('5'))
  await queue.enqueue('6')
  assert.ok((await queue.stats()).oldestReadyAgeMs >= 0)
  assert.deepEqual(await drainPayloads(peer), ['1', '2', '3', '4', '5', '6'])
}

/** What waits, and what is claimed, comes back in its time though the clock of the process has gone back an hour. */
async function nothingStuck(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.enqueue('delayed', { delayMs: 80 })
  await queue.enqueue('requeued')
  await withClockOff(-60 * MINUTE_MS, async () => {
    assert.equal(await (await receive(queue)).requeue({ delayMs: 80 }), 'settled')
    const coming = [await receive(queue, SLACK_MS * 2), await receive(queue, SLACK_MS * 2)]
    assert.deepEqual(coming.map(({ payload }) => payload).sort(), ['delayed', 'requeued'])
    for (const delivery of coming) assert.equal(await within(SLACK_MS, 'an ack', delivery.ack()), 'settled')
  })
  await statsAre(queue, { ackedTotal: 2 })
}

/** Enqueueing. */
export const enqueueing: Concern = {
  name: 'enqueueing',
  scenarios: [
    scenario('N28', 'an enqueue whose reply is lost stores once and answers as the first time', repliesLost),
    scenario(
      'N28',
      'an enqueue that its caller gave up and says again with the same id is stored once',
      storesOnceByHand,
    ),
    scenario('N29', 'an id is a duplicate in every state, and while its outcome is retained', duplicateInEveryState),
    ...Object.entries(ENDS).map(([name, end]) =>
      scenario('N29', `the id of a message ${name} is free again`, (bench) => freeAgain(bench, end)),
    ),
    scenario('N29', 'of 50 callers with one id one stores, and all are told that id', fiftyCallers),
    scenario('N29', 'an id twice in one batch is stored once, the others of the batch too', duplicatesInBatch),
    ...Object.keys(UNSTORABLE).map((why) =>
      scenario('N30', `of a batch whose third entry ${why} nothing is stored`, (bench) => allOrNothing(bench, why)),
    ),
    scenario('N30', 'nobody ever sees a part of a batch', neverSeenInPart),
    scenario('N30', 'an empty batch does no I/O', nothingIsNoIo),
    scenario('N31', 'a batch keeps its order, after what is older and before what is newer', keepsBatchOrder),
    scenario(
      'N32',
      'a batch over the limit is refused naming it, one at a limit of up to 10 000 is stored',
      overTheCount,
    ),
    scenario('N32', 'batches of 127 to 1000 are stored whole and in order, or refused whole', wholeOrRefused),
    scenario('N32', 'a payload of 2 MiB is refused naming the limit, its whole batch with it', overTheBytes),
    scenario('N34', 'what producers with wrong clocks enqueue comes in the order of its arrival', clockJumpsBack),
    scenario('N34', 'a clock that goes back an hour leaves nothing stuck', nothingStuck),
  ],
}
