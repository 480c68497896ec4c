/**
 * Waiting on an empty queue: N5 to N7.
 */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import type { Delivery } from '../../delivery.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { callsOf, EARLY_MS, now, parked, pass, receive, SLACK_MS, soon, statsAre, turn, within } from './wait.js'

/** Fails unless so much time has passed, and not much more. */
function tookAbout(startedAt: number, ms: number): void {
  const took = now() - startedAt
  assert.ok(took >= ms - EARLY_MS, `too early: after ${took} ms of ${ms} ms`)
  assert.ok(took < ms + SLACK_MS, `too late: after ${took} ms of ${ms} ms`)
}

async function boundedWait(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const { signal } = new AbortController()
  await queue.stats()
  for (const receiving of [
    () => queue.receive({ timeoutMs: 200, signal }),
    () => queue.take({ timeoutMs: 200, signal }),
  ]) {
    const startedAt = now()
    assert.equal(await receiving(), undefined)
    tookAbout(startedAt, 200)
    assert.equal(getEventListeners(signal, 'abort').length, 0)
  }
}

async function deregisters(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  for (let waiter = 0; waiter < 20; waiter += 1) assert.equal(await queue.receive({ timeoutMs: 5 }), undefined)
  await turn()
  const claims = callsOf(bench.backend, 'claim')
  await peer.enqueue('late')
  await pass(100)
  assert.equal(callsOf(bench.backend, 'claim'), claims, 'a waiter that has left claims')
  const delivery = await receive(peer)
  assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['late', 1, 1])
}

async function lateArrival(bench: Bench, from: 'the same queue' | 'a peer'): Promise<void> {
  const queue = bench.queue<number>()
  const producer = from === 'a peer' ? await bench.peer(queue) : queue
  await producer.stats()
  for (const [index, delayMs] of [20, 70, 150].entries()) {
    const { delivered } = await parked(bench.backend, () => ({ delivered: queue.receive({ timeoutMs: 30_000 }) }))
    await pass(delayMs)
    await producer.enqueue(index)
    const delivery = await within(SLACK_MS, 'what arrived late', delivered)
    assert.equal(delivery?.payload, index)
    assert.equal(await delivery?.ack(), 'settled')
  }
  await statsAre(queue, { ackedTotal: 3 })
}

/** Enqueues while the first claim, or its empty answer, is under way. */
async function arrivalInTheGap(bench: Bench, kind: 'hold-reply' | 'hold-request'): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await queue.stats()
  const fault = bench.backend.inject({ verb: 'claim', kind })
  const waiter = queue.receive({ timeoutMs: 30_000 })
  await soon('the claim', fault.reached)
  await peer.enqueue('in the gap')
  await turn()
  fault.release()
  const delivery = await within(SLACK_MS, 'what arrived in the gap', waiter)
  assert.deepEqual([delivery?.payload, delivery?.attempt, delivery?.deliveryCount], ['in the gap', 1, 1])
}

async function arrivalBeforeSettings(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  const fault = bench.backend.inject({ verb: 'settings', kind: 'hold-reply' })
  const waiter = queue.receive({ timeoutMs: 30_000 })
  await soon('the first use', fault.reached)
  await peer.enqueue('early')
  fault.release()
  assert.equal((await within(SLACK_MS, 'what arrived before the first claim', waiter))?.payload, 'early')
}

/** Both claims of a batch are under way with nothing found; two messages come, and each waiter needs one. */
async function arrivalsForAllInTheGap(bench: Bench): Promise<void> {
  const queue = bench.queue()
  await queue.stats()
  const fault = bench.backend.inject({ verb: 'claim', kind: 'hold-reply', times: 3 })
  const waiters = [0, 1, 2].map(() => queue.receive({ timeoutMs: 30_000 }))
  await soon('the claims', fault.reached)
  await turn()
  await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }, { payload: 'c' }])
  fault.release()
  const deliveries = await within(SLACK_MS, 'one message for each waiter', Promise.all(waiters))
  assert.deepEqual(deliveries.map((delivery) => (delivery as Delivery<string>).payload).toSorted(), ['a', 'b', 'c'])
}

/** Consumers that wait. */
export const waiting: Concern = {
  name: 'waiting',
  scenarios: [
    scenario('N5', 'a bounded wait on an empty queue ends in time with undefined', boundedWait),
    scenario('N5', 'a waiter whose time is up has left: it takes no later message', deregisters),
    scenario('N6', 'what arrives late reaches a waiter promptly', (bench) => lateArrival(bench, 'the same queue')),
    scenario('N6', 'what another client enqueues reaches a waiter promptly', (bench) => lateArrival(bench, 'a peer')),
    scenario('N7', 'what arrives between the empty answer and the wait is delivered at once', (bench) =>
      arrivalInTheGap(bench, 'hold-reply'),
    ),
    scenario('N7', 'what arrives before the claim is run is delivered at once', (bench) =>
      arrivalInTheGap(bench, 'hold-request'),
    ),
    scenario('N7', 'what arrives while the queue is first opened is delivered at once', arrivalBeforeSettings),
    scenario('N7', 'what arrives in the gap for three waiters reaches all three', arrivalsForAllInTheGap),
  ],
}
