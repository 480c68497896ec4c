import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import { MessageCancelledError } from '../../errors.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import { run } from '../../sinks/run.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { aborted, assertDepth, next, nextNow, payloads } from './steps.js'
import { pass, range, shortLeaseMs, soon, until } from './wait.js'

/** A message that is cancelled is not delivered again, and everybody learns it. */
export const messageCancel: Concern = {
  name: 'cancelling a message',
  scenarios: [
    scenario('N71', 'a queued message that is cancelled is never delivered', async (bench) => {
      const queue = await named(bench, ['a', 'b', 'c'])
      const peer = await bench.peer(queue)
      assert.equal(await peer.cancel('b'), 'cancelled')
      assert.deepEqual(await payloads(queue), ['a', 'c'])
      assert.deepEqual(await queue.outcome('b'), { state: 'cancelled' })
      await assertDepth(queue, { ready: 0, dead: 0, cancelledTotal: 1, ackedTotal: 2 })
    }),

    scenario('N71', 'a delayed message that is cancelled does not mature', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { id: 'a', delayMs: 60 })
      assert.equal(await queue.cancel('a'), 'cancelled')
      assert.equal(await queue.receive({ timeoutMs: 150 }), undefined)
      await assertDepth(queue, { delayed: 0, cancelledTotal: 1 })
    }),

    scenario('N71', 'a running message is told by its signal, and ends as cancelled', async (bench) => {
      const queue = await named(bench, ['a'])
      const peer = await bench.peer(queue)
      const reasons: unknown[] = []
      const handler = async ({ signal }: Delivery<string>) => {
        await aborted(signal)
        reasons.push(signal.reason)
        throw signal.reason
      }
      const running = run(pipe(queue.source({ until: 'idle' }), mergeMap(handler, 1)))
      await until('it runs', async () => (await peer.stats()).claimed === 1)
      assert.equal(await peer.cancel('a'), 'cancelling')
      assert.deepEqual(await soon('it ends', peer.outcome('a')), { state: 'cancelled' })
      await soon('the run ends', running)
      const [reason] = reasons
      assert.ok(reason instanceof MessageCancelledError)
      assert.deepEqual([reason.id, reason.name], ['a', 'AbortError'])
      await assertDepth(peer, { ready: 0, delayed: 0, claimed: 0, dead: 0, cancelledTotal: 1 })
    }),

    ...(['requeue', 'release', 'deadLetter', 'fail'] as const).map((settle) =>
      scenario('N71', `a running message that was cancelled does not survive a ${settle}`, async (bench) => {
        const queue = await named(bench, ['a'])
        const delivery = await nextNow(queue)
        assert.equal(await queue.cancel('a'), 'cancelling')
        assert.equal(await (settle === 'requeue' ? delivery.requeue() : delivery[settle]('given up')), 'settled')
        assert.deepEqual(await queue.outcome('a'), { state: 'cancelled' })
        await assertDepth(queue, { ready: 0, delayed: 0, claimed: 0, dead: 0, cancelledTotal: 1 })
      }),
    ),

    scenario('N71', 'a running message that was cancelled and is acked all the same is done', async (bench) => {
      const queue = await named(bench, ['a'])
      const delivery = await nextNow(queue)
      assert.equal(await queue.cancel('a'), 'cancelling')
      await soon('the handler is told', aborted(delivery.signal))
      assert.equal(await delivery.ack('done'), 'settled')
      assert.deepEqual(await queue.outcome('a'), { state: 'done', result: 'done' })
      await assertDepth(queue, { claimed: 0, ackedTotal: 1, cancelledTotal: 0 })
    }),

    scenario('N71', 'a cancelled message whose consumer dies is not delivered again', async (bench) => {
      const queue = await named(bench, ['a'])
      const peer = await bench.peer(queue)
      bench.backend.inject({ verb: 'renew', kind: 'drop-request', times: Number.POSITIVE_INFINITY })
      await nextNow(queue)
      assert.equal(await peer.cancel('a'), 'cancelling')
      assert.deepEqual(await soon('the claim lapses', peer.outcome('a')), { state: 'cancelled' })
      assert.equal(await peer.tryReceive(), undefined)
      await assertDepth(peer, { ready: 0, claimed: 0, dead: 0, cancelledTotal: 1 })
    }),

    scenario('N71', 'cancelling what has ended says so, and changes nothing', async (bench) => {
      const queue = await named(bench, ['done', 'dead', 'cancelled'])
      await (await nextNow(queue)).ack('kept')
      await (await nextNow(queue)).deadLetter('kept too')
      assert.equal(await queue.cancel('cancelled'), 'cancelled')
      for (const id of ['done', 'dead', 'cancelled']) assert.equal(await queue.cancel(id), 'finished', id)
      assert.deepEqual(await queue.outcome('done'), { state: 'done', result: 'kept' })
      assert.deepEqual(await queue.outcome('dead'), { state: 'dead', reason: 'kept too' })
      await assertDepth(queue, { dead: 1, ackedTotal: 1, cancelledTotal: 1 })
    }),

    scenario('N71', 'cancelling what never was says so', async (bench) => {
      const queue = bench.queue()
      assert.equal(await queue.cancel('nobody'), 'unknown')
      await assertDepth(queue, { cancelledTotal: 0, enqueuedTotal: 0 })
    }),

    scenario('N71', 'a cancel whose answer is lost is asked again, and answers as it did first', async (bench) => {
      const queue = await named(bench, ['a'])
      bench.backend.inject({ verb: 'cancel', kind: 'fail-reply' })
      assert.equal(await soon('the cancel', queue.cancel('a')), 'cancelled')
      await assertDepth(queue, { cancelledTotal: 1, ready: 0 })
    }),

    scenario('N71', 'cancelling a running message twice is the same as once', async (bench) => {
      const queue = await named(bench, ['a'])
      const delivery = await nextNow(queue)
      assert.equal(await queue.cancel('a'), 'cancelling')
      assert.equal(await queue.cancel('a'), 'cancelling')
      await delivery.release()
      await assertDepth(queue, { cancelledTotal: 1, ready: 0 })
    }),

    scenario('N71', 'a cancel does not touch the other messages of its consumer', async (bench) => {
      const queue = await named(bench, ['a', 'b'])
      const [a, b] = [await nextNow(queue), await nextNow(queue)]
      await queue.cancel('a')
      await soon('the one is told', aborted(a.signal))
      await pass(30)
      assert.equal(b.signal.aborted, false)
      assert.equal(await b.ack(), 'settled')
    }),

    scenario('N71', 'a cancel that races the claim wins or is told, never both and never neither', async (bench) => {
      const queue = bench.queue<number>()
      const peer = await bench.peer(queue)
      for (const n of range(60)) {
        const id = String(n)
        await queue.enqueue(n, { id })
        const wait = queue.tryReceive()
        if (n % 3 === 1) await Promise.resolve()
        const reply = await peer.cancel(id)
        const delivery = await wait
        if (delivery) {
          assert.equal(reply, 'cancelling')
          await soon('the handler is told', aborted(delivery.signal))
          assert.equal(await delivery.requeue(), 'settled')
        } else assert.equal(reply, 'cancelled')
        assert.deepEqual(await queue.outcome(id), { state: 'cancelled' })
      }
      await assertDepth(queue, { ready: 0, claimed: 0, dead: 0, cancelledTotal: 60 })
    }),

    scenario('N71', 'a waiter parked for a message that is cancelled goes on waiting', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { id: 'a', delayMs: 100 })
      const wait = next(queue)
      await pass(20)
      assert.equal(await queue.cancel('a'), 'cancelled')
      await pass(150)
      await queue.enqueue('b')
      assert.equal((await wait).payload, 'b')
    }),

    scenario('X9', 'the id of a cancelled message stays a duplicate while its outcome is kept', async (bench) => {
      const queue = await named(bench, ['a'])
      await queue.cancel('a')
      assert.equal((await queue.enqueue('again', { id: 'a' })).status, 'duplicate')
    }),
  ],
}

async function named(bench: Bench, ids: readonly string[]) {
  const queue = bench.queue({ leaseMs: shortLeaseMs(bench.features, 300) })
  await queue.enqueueAll(ids.map((id) => ({ id, payload: id })))
  return queue
}
