import assert from 'node:assert/strict'
import { LeaseLostError } from '../../errors.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import { run } from '../../sinks/run.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, bury, enqueueMany, next, nextNow, payloads } from './steps.js'
import { all, pass, range, shortLeaseMs, until } from './wait.js'

/** A purge drops what it names, counts it, and leaves the rest alone. */
export const purging: Concern = {
  name: 'purging',
  scenarios: [
    scenario('N76', 'a purge leaves what is in flight, whose acks still count', async (bench) => {
      const { queue, claimed } = await oneOfEach(bench)
      assert.equal(await queue.purge(), 4)
      await assertDepth(queue, { ready: 0, delayed: 0, claimed: 1, dead: 1, purgedTotal: 4 })
      assert.equal(await claimed.ack(), 'settled')
      await assertDepth(queue, { claimed: 0, ackedTotal: 1 })
    }),

    scenario(
      'N76',
      'a claimed message that is purged is gone: its ack is stale, and it comes back to nobody',
      async (bench) => {
        const { queue, claimed } = await oneOfEach(bench)
        assert.equal(await queue.purge({ state: 'claimed' }), 1)
        assert.equal(await claimed.ack(), 'stale')
        assert.equal((await queue.outcome(claimed.id)).state, 'unknown')
        await assertDepth(queue, { ready: 2, delayed: 2, claimed: 0, dead: 1, purgedTotal: 1, ackedTotal: 0 })
      },
    ),

    scenario('N76', 'the handler of a purged message is told that its claim is lost', async (bench) => {
      const queue = bench.queue({ leaseMs: shortLeaseMs(bench.features, 100) })
      await queue.enqueue('a')
      const delivery = await nextNow(queue)
      const { signal } = delivery
      assert.equal(await queue.purge({ state: 'claimed' }), 1)
      await until('the handler is told', () => signal.aborted)
      assert.ok(signal.reason instanceof LeaseLostError)
      assert.equal(await delivery.requeue(), 'stale')
      await assertDepth(queue, { ready: 0, claimed: 0, purgedTotal: 1 })
    }),

    scenario(
      'N76',
      'a purge whose answer is lost is asked again, and counts what it dropped the first time',
      async (bench) => {
        const { queue } = await oneOfEach(bench)
        bench.backend.inject({ verb: 'purge', kind: 'fail-reply' })
        assert.equal(await queue.purge(), 4)
        await assertDepth(queue, { ready: 0, delayed: 0, claimed: 1, purgedTotal: 4 })
      },
    ),

    scenario('N76', 'the old claim of a purged id has no power over a new message of that id', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('old', { id: 'a' })
      const old = await nextNow(queue)
      await queue.purge({ state: 'claimed' })
      assert.equal((await queue.enqueue('new', { id: 'a' })).status, 'enqueued')
      const fresh = await nextNow(queue)
      assert.deepEqual([fresh.payload, fresh.attempt, fresh.deliveryCount], ['new', 1, 1])
      assert.ok(fresh.fence > old.fence, 'the fence did not rise')
      assert.equal(await old.ack(), 'stale')
      assert.equal(await old.deadLetter('no'), 'stale')
      assert.equal(await fresh.ack(), 'settled')
      await assertDepth(queue, { ackedTotal: 1, purgedTotal: 1, dead: 0 })
    }),

    ...(['ready', 'delayed', 'claimed', 'dead'] as const).map((state) =>
      scenario('X14', `a purge of what is ${state} drops that alone`, async (bench) => {
        const { queue, counts } = await oneOfEach(bench)
        assert.equal(await queue.purge({ state }), counts[state])
        await assertDepth(queue, { ...counts, [state]: 0, purgedTotal: counts[state] })
      }),
    ),

    scenario('X14', 'a purge of several states drops those, and says how many', async (bench) => {
      const { queue, counts } = await oneOfEach(bench)
      assert.equal(await queue.purge({ state: ['claimed', 'dead', 'ready'] }), 4)
      await assertDepth(queue, { ready: 0, claimed: 0, dead: 0, delayed: counts.delayed, purgedTotal: 4 })
    }),

    scenario('X14', 'a purge of no state, and of an empty queue, drops nothing', async (bench) => {
      const { queue, counts } = await oneOfEach(bench)
      assert.equal(await queue.purge({ state: [] }), 0)
      await assertDepth(queue, { ...counts, purgedTotal: 0 })
      assert.equal(await bench.queue().purge(), 0)
    }),

    scenario('X14', 'purged ids are free again', async (bench) => {
      const { queue } = await oneOfEach(bench)
      await queue.purge({ state: ['ready', 'delayed', 'claimed', 'dead'] })
      await assertDepth(queue, { ready: 0, delayed: 0, claimed: 0, dead: 0, purgedTotal: 6 })
      for (const id of ['r1', 'd1', 'c', 'x']) {
        assert.equal((await queue.enqueue(`${id} again`, { id })).status, 'enqueued')
      }
      assert.deepEqual(await payloads(queue), ['r1 again', 'd1 again', 'c again', 'x again'])
    }),

    scenario('X14', 'a purge of thousands drops and counts them all', async (bench) => {
      const queue = bench.queue()
      const count = bench.features.maxBatch >= 1_000 ? 2_500 : 300
      await enqueueMany(
        queue,
        bench.features,
        range(count).map((n) => ({ payload: String(n), delayMs: n % 2 ? 60_000 : 0 })),
      )
      assert.equal(await queue.purge(), count)
      await assertDepth(queue, { ready: 0, delayed: 0, purgedTotal: count })
    }),

    scenario('X14', 'a purge beside consumers drops or leaves each message, never both', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      const count = 300
      await queue.enqueueAll(range(count).map((n) => ({ payload: String(n) })))
      let handled = 0
      const running = run(
        pipe(
          queue.source({ until: 'idle' }),
          mergeMap(async () => {
            await pass(2)
            handled += 1
          }, 5),
        ),
      )
      await until('some are handled', () => handled > 10)
      const purged = await peer.purge()
      await running
      assert.ok(purged > 0, 'the purge came too late to say anything')
      assert.equal(handled + purged, count)
      await assertDepth(queue, { ready: 0, claimed: 0, ackedTotal: handled, purgedTotal: purged })
    }),

    scenario('X14', 'a waiter goes on waiting through a purge, and gets what comes after it', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('later', { delayMs: 150 })
      const wait = next(queue)
      await pass(20)
      await queue.purge()
      await pass(200)
      await queue.enqueue('new')
      assert.equal((await wait).payload, 'new')
    }),

    scenario(
      'M11',
      'a queue that is purged of everything is as empty as a new one, and full again at the same size',
      async (bench) => {
        const queue = bench.queue({ limits: { maxLength: 4, maxBytes: 400 } })
        const payload = 'x'.repeat(40)
        for (const _ of range(3)) {
          await queue.enqueueAll(range(4).map((n) => ({ payload, delayMs: n === 3 ? 60_000 : 0 })))
          const held = await nextNow(queue)
          assert.equal(await queue.purge({ state: ['ready', 'delayed', 'claimed'] }), 4)
          assert.equal(await held.ack(), 'stale')
          assert.deepEqual(await all(queue.peek()), [])
        }
        await assertDepth(queue, { ready: 0, delayed: 0, claimed: 0, purgedTotal: 12 })
      },
    ),
  ],
}

/** r1, r2 ready; d1, d2 delayed; c claimed; x dead. */
async function oneOfEach(bench: Bench) {
  const queue = bench.queue()
  await bury(queue, ['x'])
  await queue.enqueue('c', { id: 'c' })
  const claimed = await nextNow(queue)
  await queue.enqueueAll(['r1', 'r2'].map((id) => ({ id, payload: id })))
  await queue.enqueueAll(['d1', 'd2'].map((id) => ({ id, payload: id, delayMs: 60_000 })))
  const counts = { ready: 2, delayed: 2, claimed: 1, dead: 1 }
  await assertDepth(queue, counts)
  return { queue, claimed, counts }
}
