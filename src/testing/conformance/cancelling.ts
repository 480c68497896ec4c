/**
 * Cancelling a consumer that waits or whose claim is under way: N10 to N13.
 */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import type { Queue } from '../../queue.js'
import type { FaultKind } from '../faulty-backend.js'
import { type Bench, type Concern, type Scenario, scenario } from './kit.js'
import {
  EARLY_MS,
  now,
  parked,
  receive,
  rejectsAsCancelled,
  SLACK_MS,
  shortLeaseMs,
  soon,
  statsAre,
  stays,
  turn,
  within,
} from './wait.js'
import { WAYS, type Way } from './ways.js'

/** One scenario for each way to consume. */
function everyWay(
  id: string,
  title: (way: string) => string,
  body: (bench: Bench, way: Way) => Promise<void>,
): Scenario[] {
  return WAYS.map((way) => scenario(id, title(way.name), (bench) => body(bench, way)))
}

/** The two messages are ready, in their order, and as if nobody had ever claimed them. */
async function untouched(queue: Queue<string>): Promise<void> {
  await statsAre(queue, { ready: 2, enqueuedTotal: 2 })
  for (const payload of ['first', 'second']) {
    const delivery = await receive(queue)
    assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], [payload, 1, 1])
    assert.equal(await delivery.ack(), 'settled')
  }
}

async function enqueueTwo(queue: Queue<string>): Promise<void> {
  await queue.enqueueAll([{ payload: 'first' }, { payload: 'second' }])
}

async function whileParked(bench: Bench, way: Way): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  const consuming = await parked(bench.backend, () => way.start(queue))
  await turn()
  const calls = bench.backend.calls.length
  await within(SLACK_MS, 'the cancel', consuming.cancel())
  assert.equal(bench.backend.calls.length, calls, 'cancelling an idle consumer touches the backend')
  await enqueueTwo(peer)
  await turn()
  await untouched(peer)
  assert.deepEqual(consuming.seen, [])
}

async function inFlight(bench: Bench, way: Way, kind: FaultKind): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await enqueueTwo(peer)
  const fault = bench.backend.inject({ verb: 'claim', kind })
  const consuming = way.start(queue)
  await soon('the claim', fault.reached)
  const cancelled = consuming.cancel()
  await stays(40, 'cancelled before the claim was answered', cancelled)
  fault.release()
  await within(SLACK_MS, 'the cancel', cancelled)
  assert.deepEqual(consuming.seen, [])
  await untouched(peer)
}

/** The store has granted the claim, and its answers are lost for a while; the same token gets the same answer. */
async function answeredLate(bench: Bench, way: Way): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await enqueueTwo(peer)
  const fault = bench.backend.inject({ verb: 'claim', kind: 'fail-reply', times: 2 })
  const consuming = way.start(queue)
  await soon('the claim', fault.reached)
  await within(SLACK_MS, 'the cancel', consuming.cancel())
  assert.deepEqual(consuming.seen, [])
  await untouched(peer)
}

/** The worst case: nothing is heard of the claim ever again. */
async function neverAnswered(bench: Bench, way: Way): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 200)
  const queue = bench.queue({ leaseMs })
  const peer = await bench.peer(queue, { leaseMs })
  await peer.enqueue('first')
  const fault = bench.backend.inject({ verb: 'claim', kind: 'drop-reply', times: Number.POSITIVE_INFINITY })
  const startedAt = now()
  const consuming = way.start(queue)
  await soon('the claim', fault.reached)
  await within(leaseMs + SLACK_MS, 'the cancel', consuming.cancel())
  assert.ok(now() - startedAt >= leaseMs - EARLY_MS, 'cancelled before the lease had certainly lapsed')
  assert.deepEqual(consuming.seen, [])
  const delivery = await receive(peer, leaseMs + SLACK_MS)
  assert.deepEqual([delivery.payload, delivery.attempt], ['first', 2])
}

/** With `take()` such a message counts as taken: it is dropped and counted, never redelivered. */
async function takenAndNeverAnswered(bench: Bench, way: Way): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 200)
  const queue = bench.queue({ leaseMs })
  const peer = await bench.peer(queue, { leaseMs })
  await peer.enqueue('first')
  const fault = bench.backend.inject({ verb: 'claim', kind: 'drop-reply', times: Number.POSITIVE_INFINITY })
  const consuming = way.start(queue)
  await soon('the claim', fault.reached)
  await within(leaseMs + SLACK_MS, 'the cancel', consuming.cancel())
  assert.equal(await peer.receive({ timeoutMs: leaseMs + 100 }), undefined)
  await statsAre(peer, { droppedTotal: 1, enqueuedTotal: 1 })
}

async function abandonedIsTold(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features)
  const queue = bench.queue({ leaseMs })
  const fault = bench.backend.inject({ verb: 'claim', kind: 'drop-reply', times: Number.POSITIVE_INFINITY })
  const source = queue.source({ credit: 2 })
  source.subscribe()
  await soon('the claim', fault.reached)
  const { abandoned, released } = await within(leaseMs + SLACK_MS, 'stop()', source.stop())
  assert.ok(abandoned > 0, 'what could not be given back is told')
  assert.equal(released, 0)
}

/** The claim is known, and giving it back is what meets trouble. */
async function releaseInTrouble(bench: Bench, kind: FaultKind, times: number): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await enqueueTwo(peer)
  const claim = bench.backend.inject({ verb: 'claim', kind: 'hold-reply' })
  bench.backend.inject({ verb: 'settle', kind, times })
  const source = queue.source({ credit: 2 })
  source.subscribe(() => assert.fail('delivered after the cancel'))
  await soon('the claim', claim.reached)
  const stopped = source.stop()
  claim.release()
  assert.deepEqual(await soon('stop()', stopped), { released: 2, settledDuringGrace: 0, abandoned: 0 })
  await untouched(peer)
}

async function abortedBefore(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const reason = new Error('before it began')
  const signal = AbortSignal.abort(reason)
  await rejectsAsCancelled(queue.receive({ signal }), reason)
  await rejectsAsCancelled(queue.tryReceive({ signal }), reason)
  await rejectsAsCancelled(queue.take({ signal }), reason)
  await rejectsAsCancelled(queue.outcome('id', { signal }), reason)
  await rejectsAsCancelled(queue.enqueue('x', { signal }), reason)
  await rejectsAsCancelled(queue.enqueueAll([{ payload: 'x' }], { signal }), reason)
  await rejectsAsCancelled(queue.source({ signal })[Symbol.asyncIterator]().next(), reason)
  await rejectsAsCancelled(new Promise((_, reject) => queue.source({ signal }).subscribe({ error: reject })), reason)
  await turn()
  assert.deepEqual(bench.backend.calls, [], 'the backend was asked all the same')
  assert.equal(getEventListeners(signal, 'abort').length, 0)
}

/** One long-lived signal over many waits: nothing may pile up on it, and the abort itself tidies up. */
async function leavesNoListener(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const controller = new AbortController()
  const { signal } = controller
  for (let wait = 0; wait < 50; wait += 1) {
    await queue.enqueue('x')
    await (await queue.receive({ signal }))?.ack()
    assert.equal(await queue.tryReceive({ signal }), undefined)
  }
  assert.equal(getEventListeners(signal, 'abort').length, 0)
  const { waits } = await parked(bench.backend, () => ({
    waits: [queue.receive({ signal }), queue.take({ signal }), queue.source({ signal })[Symbol.asyncIterator]().next()],
  }))
  const ended = waits.map((wait) => rejectsAsCancelled(wait, signal.reason ?? 'over'))
  controller.abort('over')
  assert.equal(getEventListeners(signal, 'abort').length, 0, 'listeners are gone before abort() returns')
  await within(SLACK_MS, 'the cancels', Promise.all(ended))
}

/** A bounded wait that ends while its claim is under way is a cancel too. */
async function timedOutInFlight(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await enqueueTwo(peer)
  // Its first call may have to connect, which takes longer than the bound.
  await queue.stats()
  const fault = bench.backend.inject({ verb: 'claim', kind: 'hold-reply' })
  const receiving = queue.receive({ timeoutMs: 200 })
  await soon('the claim', fault.reached)
  await stays(250, 'ended before the claim was answered', receiving)
  fault.release()
  assert.equal(await within(SLACK_MS, 'the wait', receiving), undefined)
  await untouched(peer)
}

/** Three demands in one claim: all three go back, and in their old order. */
async function manyInFlight(bench: Bench): Promise<void> {
  const queue = bench.queue<number>()
  await queue.enqueueAll([1, 2, 3, 4].map((payload) => ({ payload })))
  const fault = bench.backend.inject({ verb: 'claim', kind: 'hold-reply' })
  const iterator = queue.source()[Symbol.asyncIterator]()
  const nexts = [iterator.next(), iterator.next(), iterator.next()]
  await soon('the claim', fault.reached)
  const returned = iterator.return?.()
  fault.release()
  await soon('return()', returned as Promise<unknown>)
  for (const next of nexts) assert.equal((await next).done, true)
  await statsAre(queue, { ready: 4 })
  for (const payload of [1, 2, 3, 4]) {
    const delivery = await receive(queue)
    assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], [payload, 1, 1])
  }
}

const TAKE = 'take() with a signal'

/** Cancels before anything was delivered. */
export const cancelling: Concern = {
  name: 'cancelling',
  scenarios: [
    ...everyWay('N10', (way) => `a parked consumer cancelled by ${way} takes nothing that comes later`, whileParked),
    ...everyWay(
      'N11',
      (way) => `a claim answered after ${way} goes back to its place, uncounted`,
      (bench, way) => inFlight(bench, way, 'hold-reply'),
    ),
    ...everyWay(
      'N11',
      (way) => `a claim that is run only after ${way} goes back to its place, uncounted`,
      (bench, way) => inFlight(bench, way, 'hold-request'),
    ),
    scenario('N11', 'a claim that outlasts the bound of receive() goes back to its place, uncounted', timedOutInFlight),
    scenario('N11', 'a claim of three that comes too late goes back whole and in order', manyInFlight),
    ...everyWay(
      'N12',
      (way) => `a claim whose answer is lost is asked for again after ${way}, and given back`,
      answeredLate,
    ),
    ...WAYS.map((way) =>
      way.name === TAKE
        ? scenario('N12', `a claim of ${way.name} that is never answered is dropped and counted`, (bench) =>
            takenAndNeverAnswered(bench, way),
          )
        : scenario('N12', `a claim that is never answered after ${way.name} comes back with its lease`, (bench) =>
            neverAnswered(bench, way),
          ),
    ),
    scenario('N12', 'stop() tells what it could not give back', abandonedIsTold),
    scenario('N12', 'a release that does not reach the store is sent again', (bench) =>
      releaseInTrouble(bench, 'fail-request', 3),
    ),
    scenario('N12', 'a release whose answer is lost is applied once', (bench) =>
      releaseInTrouble(bench, 'fail-reply', 3),
    ),
    scenario('N12', 'a release that nobody answers is asked for again', (bench) =>
      releaseInTrouble(bench, 'drop-reply', 1),
    ),
    scenario('N13', 'a signal that has aborted before is refused without any I/O', abortedBefore),
    scenario('N13', 'signals keep no listener of a wait that is over', leavesNoListener),
  ],
}
