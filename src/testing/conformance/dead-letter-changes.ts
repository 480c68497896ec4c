/**
 * Dead letters whose list changes, or whose store does not answer: more of N43, N44 and N46.
 */
import assert from 'node:assert/strict'
import { deadLetter } from '../../operators/dead-letter.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { drain } from '../../sinks/drain.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { all, callsOf, drainPayloads, range, receive, statsAre } from './wait.js'

/** Enqueues messages of these ids and makes a dead letter of each. */
async function bury(queue: Queue<string>, names: readonly string[]): Promise<void> {
  await queue.enqueueAll(names.map((id) => ({ id, payload: id })))
  for (const _ of names) assert.equal(await (await receive(queue)).deadLetter('why'), 'settled')
}

async function idsOf(queue: Queue<string>): Promise<string[]> {
  return (await all(queue.deadLetters)).map(({ id }) => id)
}

/** The answer of the first call is lost: the repeat says what the first did. */
async function answerLost(bench: Bench, verb: 'requeue' | 'purge'): Promise<void> {
  const queue = bench.queue()
  await bury(queue, ['x'])
  const driverVerb = verb === 'requeue' ? 'requeueDead' : 'purgeDead'
  bench.backend.inject({ verb: driverVerb, kind: 'fail-reply', times: 2 })
  assert.equal(await queue.deadLetters[verb]('x'), true)
  assert.equal(callsOf(bench.backend, driverVerb), 3)
  assert.equal(await queue.deadLetters[verb]('x'), false)
  await statsAre(queue, verb === 'requeue' ? { ready: 1 } : { purgedTotal: 1 })
}

async function allOrSome(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const isEven = ({ id }: { readonly id: string }) => Number(id.slice(1)) % 2 === 0
  await bury(
    queue,
    range(250).map((index) => `m${index}`),
  )
  assert.equal(await queue.deadLetters.requeueAll(isEven), 125)
  await statsAre(queue, { ready: 125, dead: 125 })
  assert.ok((await idsOf(queue)).every((id) => !isEven({ id })))
  assert.equal(await queue.deadLetters.purgeAll(({ id }) => id.length === 2), 5)
  assert.equal(await queue.deadLetters.requeueAll(), 120)
  assert.equal(await queue.deadLetters.requeueAll(), 0)
  assert.equal(await queue.deadLetters.purgeAll(), 0)
  await statsAre(queue, { ready: 245, purgedTotal: 5 })
}

/** Two clients requeue everything at once: together they count every dead letter once. */
async function allByTwo(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await bury(
    queue,
    range(120).map((index) => `m${index}`),
  )
  const counts = await Promise.all([queue.deadLetters.requeueAll(), peer.deadLetters.requeueAll()])
  assert.equal(counts[0] + counts[1], 120)
  await statsAre(queue, { ready: 120, enqueuedTotal: 120 })
}

async function survivesClose(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await bury(queue, ['a', 'b'])
  await queue.close()
  assert.deepEqual(await idsOf(peer), ['a', 'b'])
}

/** A failure for which the policy names another queue ends there, and only there. */
async function goesElsewhere(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const refused = bench.queue()
  await queue.enqueue('x', { id: 'x' })
  const failing = () => {
    throw new Error('refused')
  }
  await drain(pipe(queue.source(), deadLetter({ to: refused }), mergeMap(failing, 1)))
  await statsAre(queue, { forwardedTotal: 1 })
  assert.deepEqual(await queue.outcome('x', { timeoutMs: 0 }), { state: 'dead', reason: 'Error: refused' })
  assert.deepEqual(await idsOf(queue), [])
  assert.deepEqual(await drainPayloads(refused), ['x'])
}

/** What is taken out while somebody reads neither hides nor repeats the others. */
async function readWhileItChanges(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await bury(
    queue,
    range(350).map((index) => `m${index}`),
  )
  const seen: string[] = []
  for await (const { id } of queue.deadLetters) {
    seen.push(id)
    assert.equal(await peer.deadLetters.purge(id), true)
  }
  assert.equal(new Set(seen).size, 350)
  await statsAre(queue, { purgedTotal: 350 })
}

/** Dead letters that change. */
export const deadLetterChanges: Concern = {
  name: 'changes of dead letters',
  scenarios: [
    scenario('N43', 'a requeue whose answers are lost happens once and is true', (bench) =>
      answerLost(bench, 'requeue'),
    ),
    scenario('N43', 'requeueAll() and purgeAll() take those that pass the filter, and say how many', allOrSome),
    scenario('N43', 'two clients that requeue all at once count each dead letter once', allByTwo),
    scenario('N44', 'a purge whose answers are lost happens once and is true', (bench) => answerLost(bench, 'purge')),
    scenario('N46', 'dead letters outlast the client that made them', survivesClose),
    scenario('N46', 'a dead letter that goes to another queue is there, and its outcome is kept here', goesElsewhere),
    scenario('N46', 'a listing meets every entry once though others are purged meanwhile', readWhileItChanges),
  ],
}
