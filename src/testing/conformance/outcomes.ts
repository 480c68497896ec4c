import assert from 'node:assert/strict'
import { PayloadError } from '../../errors.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import { run } from '../../sinks/run.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, nextNow, stopwatch, throughout } from './steps.js'
import { EARLY_MS, pass, range, SLACK_MS, shortLeaseMs, soon, until, within } from './wait.js'

/** Whoever asks, from whichever process, learns how a message ended. */
export const outcomes: Concern = {
  name: 'outcomes',
  scenarios: [
    scenario('N72', 'a producer in another process learns that it is done, and the result', async (bench) => {
      const { queue, peer, delivery } = await claimed(bench)
      const wait = peer.outcome('a')
      await pass(20)
      await delivery.ack({ total: 3, list: ['x', null] })
      assert.deepEqual(await soon('the outcome', wait), { state: 'done', result: { total: 3, list: ['x', null] } })
      assert.deepEqual(await queue.outcome('a'), { state: 'done', result: { total: 3, list: ['x', null] } })
    }),

    scenario('N72', 'a producer learns that it is dead, and why', async (bench) => {
      const { peer, delivery } = await claimed(bench)
      const wait = peer.outcome('a')
      await delivery.deadLetter(new RangeError('too far'))
      assert.deepEqual(await soon('the outcome', wait), { state: 'dead', reason: 'RangeError: too far' })
    }),

    scenario('N72', 'a producer learns that it was cancelled', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueue('a', { id: 'a' })
      const wait = peer.outcome('a')
      await queue.cancel('a')
      assert.deepEqual(await soon('the outcome', wait), { state: 'cancelled' })
    }),

    scenario('N72', 'a producer learns that it expired', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueue('a', { id: 'a', ttlMs: 60 })
      assert.deepEqual(await soon('the outcome', peer.outcome('a')), { state: 'expired' })
      assert.equal(await peer.tryReceive(), undefined)
      await assertDepth(peer, { ready: 0, expiredTotal: 1 })
    }),

    scenario('N72', 'a wait that runs out answers pending, in time', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { id: 'a' })
      const clock = stopwatch()
      assert.deepEqual(await queue.outcome('a', { timeoutMs: 80 }), { state: 'pending' })
      assert.ok(clock() >= 80 - EARLY_MS && clock() <= 80 + SLACK_MS, `after ${clock()} ms`)
      assert.deepEqual(await queue.outcome('a', { timeoutMs: 0 }), { state: 'pending' })
    }),

    scenario('N72', 'asking for what never was answers unknown at once', async (bench) => {
      const queue = bench.queue()
      assert.deepEqual(await within(SLACK_MS, 'the outcome', queue.outcome('nobody')), { state: 'unknown' })
    }),

    scenario('N72', 'past its retention an outcome is unknown, and the id is free again', async (bench) => {
      const queue = bench.queue({ retention: { outcomesMs: 500 } })
      await queue.enqueue('a', { id: 'a' })
      await (await nextNow(queue)).ack('kept')
      assert.deepEqual(await queue.outcome('a'), { state: 'done', result: 'kept' })
      assert.equal((await queue.enqueue('too soon', { id: 'a' })).status, 'duplicate')
      await until('the retention ends', async () => (await queue.outcome('a')).state === 'unknown')
      assert.equal((await queue.enqueue('again', { id: 'a' })).status, 'enqueued')
      assert.equal((await nextNow(queue)).payload, 'again')
    }),

    scenario('N72', 'of too many outcomes the oldest are forgotten, and the others kept', async (bench) => {
      const queue = bench.queue({ retention: { maxOutcomes: 5 } })
      const ids = range(30).map(String)
      await queue.enqueueAll(ids.map((id) => ({ id, payload: id })))
      for (const _ of ids) await (await nextNow(queue)).ack()
      const states = await Promise.all(ids.map(async (id) => (await queue.outcome(id)).state))
      assert.deepEqual(states.slice(-5), Array(5).fill('done'))
      assert.equal(states[0], 'unknown')
    }),

    scenario('N72', 'of too many outcomes the oldest are forgotten, whoever has ended them', async (bench) => {
      const queue = bench.queue({ retention: { maxOutcomes: 20 } })
      const peer = await bench.peer(queue)
      const [old, fresh] = [range(20).map((n) => `old ${n}`), range(15).map((n) => `fresh ${n}`)]
      await queue.enqueueAll(old.map((id) => ({ id, payload: id })))
      for (const _ of old) await (await nextNow(queue)).ack()
      await peer.enqueueAll(fresh.map((id) => ({ id, payload: id })))
      for (const _ of fresh) await (await nextNow(peer)).ack()
      const stateOf = async (id: string) => (await queue.outcome(id)).state
      assert.deepEqual(await Promise.all(fresh.map(stateOf)), Array(15).fill('done'))
      assert.equal(await stateOf('old 0'), 'unknown')
    }),

    scenario('N72', 'outcomes are not kept where they shall not be', async (bench) => {
      const queue = bench.queue({ retention: { outcomesMs: 0 } })
      await queue.enqueue('a', { id: 'a' })
      await (await nextNow(queue)).ack()
      assert.deepEqual(await queue.outcome('a'), { state: 'unknown' })
      assert.equal((await queue.enqueue('again', { id: 'a' })).status, 'enqueued')
    }),

    scenario('X10', 'every one of many that wait for one message is told', async (bench) => {
      const { queue, peer, delivery } = await claimed(bench)
      const waits = range(20).map((n) => (n % 2 ? queue : peer).outcome('a'))
      await pass(20)
      await delivery.ack(7)
      for (const outcome of await soon('all are told', Promise.all(waits)))
        assert.deepEqual(outcome, { state: 'done', result: 7 })
    }),

    scenario('X10', 'a wait outlasts requeues and lapses, and ends with the message', async (bench) => {
      const { peer, delivery } = await claimed(bench)
      let ended = false
      const wait = peer.outcome('a').then((outcome) => {
        ended = true
        return outcome
      })
      await delivery.requeue()
      await (await nextNow(peer)).release()
      await throughout(40, () => !ended, 'it is still pending')
      await (await nextNow(peer)).ack('third time')
      assert.deepEqual(await soon('the outcome', wait), { state: 'done', result: 'third time' })
    }),

    scenario('X10', 'a wait that is cancelled rejects, and the next one is told', async (bench) => {
      const { queue, delivery } = await claimed(bench)
      const controller = new AbortController()
      const cancelled = assert.rejects(queue.outcome('a', { signal: controller.signal }), (error: Error) => {
        assert.equal(error.name, 'AbortError')
        return error.cause === 'enough'
      })
      const wait = queue.outcome('a')
      await pass(10)
      controller.abort('enough')
      await within(SLACK_MS, 'the cancelled wait ends', cancelled)
      await delivery.ack()
      assert.equal((await soon('the other wait ends', wait)).state, 'done')
    }),

    scenario('X10', 'a wait for a message that is purged does not hang', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { id: 'a' })
      const wait = queue.outcome('a')
      await pass(20)
      await queue.purge()
      assert.deepEqual(await soon('the wait ends', wait), { state: 'unknown' })
    }),

    scenario('X10', 'a wait for a message that is dropped for want of room does not hang', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 1, whenFull: 'dropOldest' } })
      await queue.enqueue('a', { id: 'a' })
      const wait = queue.outcome('a')
      await pass(20)
      await queue.enqueue('b')
      assert.deepEqual(await soon('the wait ends', wait), { state: 'unknown' })
    }),

    scenario('X11', 'an ack without a result is done without one', async (bench) => {
      const { queue, delivery } = await claimed(bench)
      await delivery.ack()
      assert.deepEqual(await queue.outcome('a'), { state: 'done', result: undefined })
    }),

    scenario('X11', 'every JSON value comes back as the result that it was', async (bench) => {
      const queue = bench.queue()
      const results = [null, 0, '', false, [], {}, 'ü\u0000🐟', { deep: [{ a: 1.5 }] }]
      for (const [index, result] of results.entries()) {
        const id = String(index)
        await queue.enqueue('a', { id })
        await (await nextNow(queue)).ack(result)
        assert.deepEqual(await queue.outcome(id), { state: 'done', result })
      }
    }),

    scenario('X11', 'a result that JSON would change is refused, and the claim stays', async (bench) => {
      const { queue, delivery } = await claimed(bench)
      await assert.rejects(delivery.ack(new Map()), PayloadError)
      await assert.rejects(delivery.ack({ at: 1n }), PayloadError)
      assert.equal(delivery.settled, false)
      assert.equal(await delivery.ack('fine'), 'settled')
      assert.deepEqual(await queue.outcome('a'), { state: 'done', result: 'fine' })
    }),

    scenario('X11', 'a handler that shall store its result does, and others do not', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { id: 'a' })
      await run(
        pipe(
          queue.source({ until: 'empty' }),
          mergeMap(async ({ payload }) => `${payload}!`, 1, { storeResult: true }),
        ),
      )
      await queue.enqueue('b', { id: 'b' })
      await run(
        pipe(
          queue.source({ until: 'empty' }),
          mergeMap(async ({ payload }) => `${payload}!`, 1),
        ),
      )
      assert.deepEqual(await queue.outcome('a'), { state: 'done', result: 'a!' })
      assert.deepEqual(await queue.outcome('b'), { state: 'done', result: undefined })
    }),

    scenario('X11', 'a dead letter that is requeued is pending again, and then done', async (bench) => {
      const { queue, delivery } = await claimed(bench)
      await delivery.deadLetter('no')
      assert.equal((await queue.outcome('a')).state, 'dead')
      await queue.deadLetters.requeue('a')
      assert.deepEqual(await queue.outcome('a', { timeoutMs: 0 }), { state: 'pending' })
      await (await nextNow(queue)).ack('at last')
      assert.deepEqual(await queue.outcome('a'), { state: 'done', result: 'at last' })
    }),

    scenario('X11', 'a message that was forwarded is done here', async (bench) => {
      const { queue, delivery } = await claimed(bench)
      const target = bench.queue()
      assert.equal(await delivery.forward(target, 'moved'), 'settled')
      assert.equal((await queue.outcome('a')).state, 'done')
    }),
  ],
}

/** A message 'a' that is claimed in one process, and another process that may ask for it. */
async function claimed(bench: Bench) {
  const queue = bench.queue({ leaseMs: shortLeaseMs(bench.features, 2_000) })
  const peer = await bench.peer(queue)
  await queue.enqueue('a', { id: 'a' })
  return { queue, peer, delivery: await nextNow(queue) }
}
