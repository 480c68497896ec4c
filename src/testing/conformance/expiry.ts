import assert from 'node:assert/strict'
import { type Concern, scenario } from './kit.js'
import { assertDepth, next, nextNow, payloads } from './steps.js'
import { all, pass, range, shortLeaseMs, soon, until } from './wait.js'

/** What nobody took in time ends as it was told to, and what somebody took does not. */
export const expiry: Concern = {
  name: 'time to live',
  scenarios: [
    scenario(
      'X23',
      'a message that nobody took in time is dropped, counted, and delivered to nobody',
      async (bench) => {
        const queue = bench.queue({ ttlMs: 60 })
        await queue.enqueueAll([{ payload: 'a', id: 'a' }, { payload: 'b' }])
        await pass(100)
        assert.equal(await queue.tryReceive(), undefined)
        await assertDepth(queue, { ready: 0, dead: 0, expiredTotal: 2 })
        assert.deepEqual(await queue.outcome('a'), { state: 'expired' })
      },
    ),

    scenario('X23', 'a message that nobody took in time is a dead letter, where it shall be', async (bench) => {
      const queue = bench.queue({ ttlMs: 60, whenExpired: 'dead-letter' })
      await queue.enqueue('a', { id: 'a', key: 'k' })
      await pass(100)
      assert.equal(await queue.tryReceive(), undefined)
      const [letter] = await all(queue.deadLetters)
      assert.deepEqual([letter?.id, letter?.payload, letter?.key], ['a', 'a', 'k'])
      assert.match(letter?.reason ?? '', /time|ttl|expired/i)
      assert.deepEqual([letter?.attempts, letter?.deliveryCount], [0, 0])
      await assertDepth(queue, { ready: 0, dead: 1, expiredTotal: 0 })
      assert.equal((await queue.outcome('a')).state, 'dead')
    }),

    scenario('X23', 'a message that expires before anybody looks again is delivered to nobody', async (bench) => {
      const queue = bench.queue()
      assert.equal(await queue.tryReceive(), undefined)
      await queue.enqueue('a', { ttlMs: 50 })
      await pass(100)
      assert.equal(await queue.tryReceive(), undefined)
      await assertDepth(queue, { ready: 0, expiredTotal: 1 })
    }),

    scenario('X23', 'a message is not expired before its time', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { ttlMs: 30_000 })
      await pass(60)
      assert.equal((await nextNow(queue)).payload, 'a')
    }),

    scenario('X23', 'the time of the message goes before that of its queue', async (bench) => {
      const queue = bench.queue({ ttlMs: 50 })
      await queue.enqueueAll([{ payload: 'long', ttlMs: 30_000 }, { payload: 'short' }])
      await pass(100)
      assert.deepEqual(await payloads(queue), ['long'])
      await assertDepth(queue, { expiredTotal: 1, ackedTotal: 1 })
    }),

    scenario(
      'X23',
      'more expired messages than a store ends in one step hide nothing and are all counted',
      async (bench) => {
        const queue = bench.queue()
        const expired = 2_500
        for (const _ of range(expired / 500))
          await queue.enqueueAll(range(500).map(() => ({ payload: 'short', ttlMs: 1 })))
        await queue.enqueue('long')
        await pass(20)
        assert.equal((await nextNow(queue)).payload, 'long')
        await until('all are ended', async () => (await queue.stats()).ready === 0)
        await assertDepth(queue, { claimed: 1, expiredTotal: expired, enqueuedTotal: expired + 1 })
      },
    ),

    scenario('X23', 'an expired message in front does not hold up the one behind it', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('short', { ttlMs: 30, priority: 0 })
      await queue.enqueue('long', { priority: 9 })
      await pass(80)
      assert.equal((await nextNow(queue)).payload, 'long')
    }),

    scenario(
      'X23',
      'a message that is claimed does not expire while it is, and does when it comes back too late',
      async (bench) => {
        const queue = bench.queue({ leaseMs: shortLeaseMs(bench.features, 5_000) })
        await queue.enqueueAll([
          { payload: 'acked', ttlMs: 1_000 },
          { payload: 'released', ttlMs: 1_000 },
        ])
        const [acked, released] = [await nextNow(queue), await nextNow(queue)]
        await pass(1_100)
        await assertDepth(queue, { claimed: 2, expiredTotal: 0 })
        assert.equal(await acked.ack(), 'settled')
        assert.equal(await released.release(), 'settled')
        assert.equal(await queue.tryReceive(), undefined)
        await assertDepth(queue, { claimed: 0, ready: 0, ackedTotal: 1, expiredTotal: 1 })
      },
    ),

    scenario('X23', 'the time runs while a message is delayed', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll([
        { payload: 'never', delayMs: 60_000, ttlMs: 60 },
        { payload: 'ready', delayMs: 60, ttlMs: 30_000 },
      ])
      assert.equal((await next(queue)).payload, 'ready')
      await pass(50)
      assert.equal(await queue.tryReceive(), undefined)
      await assertDepth(queue, { delayed: 0, expiredTotal: 1 })
    }),

    scenario(
      'X23',
      'a dead letter does not expire, and has its whole time again when it is requeued',
      async (bench) => {
        const queue = bench.queue({ ttlMs: 150 })
        await queue.enqueue('a', { id: 'a' })
        await (await nextNow(queue)).deadLetter('no')
        await pass(200)
        await assertDepth(queue, { dead: 1, expiredTotal: 0 })
        await queue.deadLetters.requeue('a')
        const again = await nextNow(queue)
        assert.deepEqual([again.payload, again.attempt], ['a', 1])
        await again.release()
        await pass(200)
        assert.equal(await queue.tryReceive(), undefined)
        await assertDepth(queue, { dead: 0, expiredTotal: 1 })
      },
    ),

    scenario(
      'X23',
      'a parked consumer is not given what expires while it waits, nor kept from what comes',
      async (bench) => {
        const queue = bench.queue()
        await queue.enqueue('never', { delayMs: 200, ttlMs: 50 })
        const wait = next(queue)
        await pass(300)
        await queue.enqueue('a')
        assert.equal((await soon('the wait ends', wait)).payload, 'a')
        await assertDepth(queue, { expiredTotal: 1 })
      },
    ),
  ],
}
