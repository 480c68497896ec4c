import assert from 'node:assert/strict'
import { type Concern, scenario } from './kit.js'
import { assertDepth, nextNow } from './steps.js'
import { pass, range, shortLeaseMs, soon, until, within } from './wait.js'

/** What is taken is handed over once or never, and given back when it was not handed over. */
export const atMostOnce: Concern = {
  name: 'at most once',
  scenarios: [
    scenario('X24', 'a take gives the payload, and the message is done', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { id: 'a' })
      assert.equal(await queue.take(), 'a')
      assert.equal(await queue.tryTake(), undefined)
      assert.equal((await soon('the outcome', queue.outcome('a'))).state, 'done')
      await assertDepth(queue, { ready: 0, claimed: 0, ackedTotal: 1 })
    }),

    scenario('X24', 'a take of nothing answers nothing, in time', async (bench) => {
      const queue = bench.queue()
      assert.equal(await queue.tryTake(), undefined)
      assert.equal(await within(1_000, 'the wait ends', queue.take({ timeoutMs: 60 })), undefined)
    }),

    scenario('X24', 'many takes of some messages give each to one of them', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueueAll(range(30).map((n) => ({ payload: String(n) })))
      const taken = await Promise.all(range(50).map((n) => (n % 2 ? queue : peer).tryTake()))
      const got = taken.filter((payload) => payload !== undefined)
      assert.equal(got.length, 30)
      assert.equal(new Set(got).size, 30)
      await until('all are done', async () => (await queue.stats()).ackedTotal === 30)
    }),

    scenario('X24', 'a message whose taker dies with it is dropped and counted, not delivered again', async (bench) => {
      const queue = bench.queue({ leaseMs: shortLeaseMs(bench.features, 250) })
      const peer = await bench.peer(queue)
      await queue.enqueue('a', { id: 'a' })
      // The ack of the take never gets there, and no renewal does.
      for (const verb of ['settle', 'renew'] as const)
        bench.backend.inject({ verb, kind: 'fail-request', times: Number.POSITIVE_INFINITY })
      assert.equal(await queue.tryTake(), 'a')
      await until('the claim lapses', async () => {
        assert.equal(await peer.tryReceive(), undefined)
        return (await peer.stats()).claimed === 0
      })
      await assertDepth(peer, { ready: 0, claimed: 0, dead: 0, ackedTotal: 0, droppedTotal: 1 })
    }),

    scenario('X24', 'a take that is cancelled before it is given anything gives it back', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueue('a')
      const fault = bench.backend.inject({ verb: 'claim', kind: 'hold-reply' })
      const controller = new AbortController()
      const wait = assert.rejects(queue.take({ signal: controller.signal }), { name: 'AbortError' })
      await soon('it is claimed', fault.reached)
      controller.abort()
      fault.release()
      await soon('the wait ends', wait)
      await until('it is back', async () => (await peer.stats()).ready === 1)
      const delivery = await nextNow(peer)
      assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
    }),

    scenario('X24', 'a payload that does not decode is a dead letter for a take too', async (bench) => {
      const broken = { name: 'json', encode: () => Uint8Array.of(0x7b), decode: () => '' }
      const queue = bench.queue({ codec: broken })
      await queue.enqueue('poison')
      const reader = await bench.peer(queue)
      assert.equal(await soon('the try ends', reader.tryTake()), undefined)
      await until('it is dead', async () => (await reader.stats()).dead === 1)
    }),

    scenario('X25', 'a source that acks by itself has acked what it hands over, and touched no more', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll(['a', 'b', 'c'].map((payload) => ({ payload })))
      for await (const delivery of queue.source({ autoAck: true })) {
        assert.equal(delivery.settled, true)
        assert.equal(await delivery.ack(), 'already-settled')
        if (delivery.payload === 'b') break
      }
      await assertDepth(queue, { ready: 1, claimed: 0, dead: 0, ackedTotal: 2 })
      assert.equal((await nextNow(queue)).deliveryCount, 1)
    }),

    scenario('X25', 'a throw in the loop brings nothing back that was acked by itself', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      const failing = async () => {
        for await (const { payload } of queue.source({ autoAck: true })) throw new Error(payload)
      }
      await assert.rejects(failing(), { message: 'a' })
      await assertDepth(queue, { ready: 0, claimed: 0, ackedTotal: 1 })
    }),

    scenario('X25', 'an RxJS subscriber with one credit gets one after the other without settling', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll(range(20).map((n) => ({ payload: String(n) })))
      const seen: string[] = []
      const subscription = queue.source({ autoAck: true }).subscribe(({ payload }) => seen.push(payload))
      await until('all come', () => seen.length === 20)
      assert.deepEqual(seen, range(20).map(String))
      subscription.unsubscribe()
      await until('all are acked', async () => (await queue.stats()).ackedTotal === 20)
      await pass(5)
      await assertDepth(queue, { ready: 0, claimed: 0 })
    }),
  ],
}
