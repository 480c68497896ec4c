import assert from 'node:assert/strict'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import { run } from '../../sinks/run.js'
import { type Concern, scenario } from './kit.js'
import { assertDepth, next, nextNow, payloads, throughout } from './steps.js'
import { pass, range, shortLeaseMs, soon, until, within } from './wait.js'

/** A paused queue gives nothing to anybody, and takes everything. */
export const pausing: Concern = {
  name: 'pausing',
  scenarios: [
    scenario('N69', 'a paused queue is claimed from in no process and by no means', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
      await queue.pause()
      for (const each of [queue, peer]) {
        assert.equal(await each.tryReceive(), undefined)
        assert.equal(await each.tryTake(), undefined)
        assert.equal(await each.receive({ timeoutMs: 30 }), undefined)
      }
      await assertDepth(peer, { ready: 2, claimed: 0, paused: true })
      await peer.resume()
      assert.deepEqual(await payloads(queue), ['a', 'b'])
      await assertDepth(queue, { paused: false })
    }),

    scenario('N69', 'a paused queue takes messages, and settlements of what is held', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll(range(4).map((n) => ({ payload: String(n) })))
      const [ack, requeue, dead, release] = [
        await nextNow(queue),
        await nextNow(queue),
        await nextNow(queue),
        await nextNow(queue),
      ]
      await queue.pause()
      assert.equal((await queue.enqueue('new')).status, 'enqueued')
      assert.equal(await ack.ack(), 'settled')
      assert.equal(await requeue.requeue(), 'settled')
      assert.equal(await dead.deadLetter('no'), 'settled')
      assert.equal(await release.release(), 'settled')
      await assertDepth(queue, { ready: 3, claimed: 0, dead: 1, ackedTotal: 1 })
      await queue.resume()
      assert.deepEqual(await payloads(queue), ['1', '3', 'new'])
    }),

    scenario('N69', 'a claim that is held when the queue is paused is renewed', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 300)
      const queue = bench.queue({ leaseMs })
      await queue.enqueue('a')
      const held = await nextNow(queue)
      await queue.pause()
      await pass(2 * leaseMs)
      assert.equal(held.signal.aborted, false)
      assert.equal(await held.ack(), 'settled')
    }),

    scenario(
      'N69',
      'a waiter parked before the pause receives nothing until the resume, and then at once',
      async (bench) => {
        const queue = bench.queue()
        const peer = await bench.peer(queue)
        let received = false
        const wait = next(queue).then((delivery) => {
          received = true
          return delivery
        })
        await pass(20)
        await peer.pause()
        await peer.enqueue('a')
        await throughout(120, () => !received, 'the waiter waits')
        await peer.resume()
        const delivery = await within(bench.features.exactHints ? 1_000 : 5_000, 'the waiter is woken', wait)
        assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
      },
    ),

    scenario('N69', 'a resume wakes as many waiters as there are messages', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.pause()
      await queue.enqueueAll(range(6).map((n) => ({ payload: String(n) })))
      const waits = range(6).map((n) => next(n % 2 ? queue : peer))
      await pass(20)
      await queue.resume()
      const deliveries = await soon('all are woken', Promise.all(waits))
      assert.equal(new Set(deliveries.map(({ id }) => id)).size, 6)
    }),

    scenario('N69', 'a delayed message that matures during the pause comes after it', async (bench) => {
      const queue = bench.queue()
      await queue.pause()
      await queue.enqueue('a', { delayMs: 60 })
      const wait = next(queue)
      await pass(150)
      await assertDepth(queue, { claimed: 0 })
      await queue.resume()
      assert.equal((await wait).payload, 'a')
    }),

    scenario('N69', 'a pause outlives the queue objects that were there', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      await queue.pause()
      const peer = await bench.peer(queue)
      await queue.close()
      assert.equal(await peer.tryReceive(), undefined)
      await assertDepth(peer, { paused: true, ready: 1 })
      await peer.resume()
      assert.equal((await nextNow(peer)).payload, 'a')
    }),

    scenario('N69', 'pausing and resuming twice is the same as once', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      await queue.pause()
      await queue.pause()
      await queue.resume()
      assert.equal((await nextNow(queue)).payload, 'a')
      await queue.resume()
      await assertDepth(queue, { paused: false })
    }),

    scenario('N69', 'a pause in the middle of a run stops it between two messages', async (bench) => {
      const queue = bench.queue<number>()
      const peer = await bench.peer(queue)
      await queue.enqueueAll(range(50).map((payload) => ({ payload })))
      const seen: number[] = []
      const handler = async ({ payload }: { readonly payload: number }) => {
        seen.push(payload)
        if (payload === 10) await peer.pause()
      }
      const running = run(pipe(queue.source({ until: 'idle' }), mergeMap(handler, 1)))
      await until('the pause is there', async () => (await peer.stats()).paused)
      await until('nothing is in flight', async () => (await peer.stats()).claimed === 0)
      const stoppedAt = seen.length
      assert.ok(stoppedAt <= 12, `${stoppedAt} were handled`)
      await throughout(80, () => seen.length === stoppedAt, 'the run waits')
      await peer.resume()
      await soon('the run goes on', running)
      assert.deepEqual(seen, range(50))
    }),

    scenario('X8', 'a paused queue with messages is not empty: a source that ends with it waits', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      await queue.pause()
      let ended = false
      const seen: string[] = []
      const running = run(
        pipe(
          queue.source({ until: 'empty' }),
          mergeMap(({ payload }) => void seen.push(payload), 1),
        ),
      ).then(() => {
        ended = true
      })
      await throughout(80, () => !ended, 'the run waits')
      await queue.resume()
      await soon('the run ends', running)
      assert.deepEqual(seen, ['a'])
    }),

    scenario('X8', 'a claim that lapses during a pause comes back after it', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 60)
      const queue = bench.queue({ leaseMs })
      const peer = await bench.peer(queue)
      await queue.enqueue('a')
      bench.backend.inject({ verb: 'renew', kind: 'drop-request', times: Number.POSITIVE_INFINITY })
      await nextNow(queue)
      await queue.pause()
      await until('the claim lapses', async () => {
        assert.equal(await peer.tryReceive(), undefined)
        return (await peer.stats()).ready === 1
      })
      await peer.resume()
      assert.equal((await next(peer)).attempt, 2)
    }),
  ],
}
