import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import { InvalidOptionError, LeaseLostError } from '../../errors.js'
import { mergeMap } from '../../operators/merge-map.js'
import { process as settling } from '../../operators/process.js'
import { pipe } from '../../pipe.js'
import { collect } from '../../sinks/collect.js'
import type { QueueSource } from '../../source.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, gate, next, nextNow, recorded, stopwatch, throughout } from './steps.js'
import { all, EARLY_MS, pass, SLACK_MS, shortLeaseMs, soon, until } from './wait.js'

/** A lease ends when its holder cannot renew it, or should not. */
export const leaseLimits: Concern = {
  name: 'limits of a lease',
  scenarios: [
    scenario(
      'N83',
      'a claim that the event loop blocked away is known to be lost in the very next step',
      async (bench) => {
        const { queue, delivery, leaseMs } = await claimed(bench, 100)
        block(2 * leaseMs)
        assert.equal(delivery.signal.aborted, true)
        assert.ok(delivery.signal.reason instanceof LeaseLostError)
        assert.equal(delivery.settled, true)
        assert.equal(await delivery.ack(), 'stale')
        assert.equal((await next(queue)).attempt, 2)
      },
    ),

    scenario('N83', 'a store that keeps the fence lets no effect of a blocked handler through twice', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 100)
      const queue = bench.queue({ leaseMs })
      const peer = await bench.peer(queue)
      await queue.enqueue('a')
      const effects: string[] = []
      let highest = 0
      const write = ({ fence, attempt }: Delivery<string>) => {
        if (fence < highest) return
        highest = fence
        effects.push(`by attempt ${attempt}`)
      }
      const blocked = await nextNow(queue)
      block(2 * leaseMs)
      const again = await next(peer)
      write(again)
      write(blocked)
      assert.equal(await again.ack(), 'settled')
      assert.equal(await blocked.ack(), 'stale')
      assert.deepEqual(effects, ['by attempt 2'])
      await assertDepth(peer, { ackedTotal: 1, ready: 0, claimed: 0 })
    }),

    scenario('N83', 'a handler that blocked the event loop is told before its next await goes on', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 200)
      const queue = bench.queue({ leaseMs })
      await queue.enqueue('a')
      const seen: unknown[] = []
      const handler = async (delivery: Delivery<string>) => {
        if (delivery.attempt > 1) return
        const { signal } = delivery
        block(2 * leaseMs)
        await Promise.resolve()
        // Asked, the delivery knows at once; a signal that was taken from it before is told with the timers.
        seen.push(delivery.signal.aborted)
        await pass(1)
        seen.push(signal.aborted)
      }
      const ends = await soon('the run ends', collect(pipe(queue.source({ until: 'idle' }), settling(handler, 1))))
      assert.deepEqual(seen, [true, true])
      assert.deepEqual(
        ends.map(({ outcome, delivery }) => `${delivery.attempt} ${outcome}`),
        ['1 lost', '2 acked'],
      )
      await assertDepth(queue, { ackedTotal: 1, claimed: 0, ready: 0 })
    }),

    scenario(
      'N83',
      'a message that was claimed and not yet handed over when the loop blocked is not handed over',
      async (bench) => {
        const leaseMs = shortLeaseMs(bench.features, 200)
        const queue = bench.queue({ leaseMs })
        await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
        const starts: string[] = []
        let first = true
        const handler = ({ payload, attempt }: Delivery<string>) => {
          starts.push(`${payload}${attempt}`)
          if (!first) return
          first = false
          block(2 * leaseMs)
        }
        await soon('the run ends', collect(pipe(queue.source({ until: 'idle' }), mergeMap(handler, 2))))
        assert.ok(!starts.includes('b1'), `b was started under a lease that had lapsed: ${starts}`)
        await assertDepth(queue, { ackedTotal: 2, claimed: 0, ready: 0 })
      },
    ),

    scenario('N84', 'a handler that never ends keeps its message up to the cap, and no longer', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 300)
      const maxLeaseMs = 2 * leaseMs
      const queue = bench.queue({ leaseMs })
      const peer = await bench.peer(queue)
      await queue.enqueue('a')
      const source = queue.source({ maxLeaseMs })
      const events = recorded(source)
      const clock = stopwatch()
      const first = await firstOf(source)
      const second = await soon('the message moves on', next(peer))
      assert.ok(clock() >= maxLeaseMs - EARLY_MS, `it moved on after ${clock()} ms of ${maxLeaseMs}`)
      assert.ok(clock() <= maxLeaseMs + leaseMs + SLACK_MS, `it moved on after ${clock()} ms of ${maxLeaseMs}`)
      assert.deepEqual([second.attempt, second.deliveryCount], [2, 2])
      assert.ok(first.signal.aborted, 'the handler is told')
      assert.ok(first.signal.reason instanceof LeaseLostError)
      assert.equal(first.signal.reason.why, 'capped')
      assert.equal(events.filter(({ type }) => type === 'stuck').length, 1)
      assert.equal(await first.ack(), 'stale')
      assert.equal(await second.ack(), 'settled')
    }),

    scenario('N84', 'proof of life moves the cap on', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 300)
      const queue = bench.queue({ leaseMs })
      await queue.enqueue('a')
      const source = queue.source({ maxLeaseMs: 1.5 * leaseMs })
      const delivery = await firstOf(source)
      const clock = stopwatch()
      while (clock() < 3 * leaseMs) {
        delivery.progress()
        await pass(leaseMs / 6)
      }
      assert.equal(delivery.signal.aborted, false)
      assert.equal(await delivery.ack(), 'settled')
      await soon('the source stops', source.stop())
      await assertDepth(queue, { ackedTotal: 1, ready: 0 })
    }),

    scenario('N84', 'a stuck handler does not take the lane of the others for good', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 250)
      const queue = bench.queue({ leaseMs, maxDeliveries: 1 })
      await queue.enqueueAll([{ payload: 'stuck' }, { payload: 'b' }, { payload: 'c' }])
      const never = gate()
      const seen: string[] = []
      const handler = async ({ payload }: Delivery<string>) => {
        seen.push(payload)
        if (payload === 'stuck') await never.opened
      }
      const source = queue.source({ maxLeaseMs: 2 * leaseMs })
      const subscription = pipe(source, mergeMap(handler, 2)).subscribe()
      await until('the others are handled', async () => (await queue.stats()).ackedTotal === 2)
      await until('the stuck one is dead', async () => (await queue.stats()).dead === 1)
      assert.deepEqual(seen, ['stuck', 'b', 'c'])
      never.open()
      subscription.unsubscribe()
    }),

    scenario('X17', 'an extension is granted from now on, and shown', async (bench) => {
      const { delivery } = await claimed(bench, 500)
      const before = delivery.leaseExpiresAt
      assert.equal(await delivery.extend(60_000), 'extended')
      assert.ok(delivery.leaseExpiresAt >= before + 50_000, `${delivery.leaseExpiresAt - before} ms more`)
      assert.equal(await delivery.ack(), 'settled')
    }),

    scenario('X17', 'an extension is not cut short by the renewals that go on', async (bench) => {
      const { delivery, leaseMs } = await claimed(bench, 200)
      assert.equal(await delivery.extend(10 * leaseMs), 'extended')
      const expiresAt = delivery.leaseExpiresAt
      await throughout(1.5 * leaseMs, () => delivery.leaseExpiresAt >= expiresAt, 'the lease is as long as granted')
      // What an extension is for: work that lets nothing else run for longer than a lease.
      block(2 * leaseMs)
      assert.equal(delivery.signal.aborted, false)
      assert.equal(await delivery.ack(), 'settled')
    }),

    scenario('X17', 'an extension beyond the cap is refused, and changes nothing', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 400)
      const queue = bench.queue({ leaseMs })
      await queue.enqueue('a')
      const source = queue.source({ maxLeaseMs: 10 * leaseMs })
      const delivery = await firstOf(source)
      assert.equal(await delivery.extend(11 * leaseMs), 'capped')
      assert.equal(delivery.settled, false)
      assert.equal(await delivery.extend(5 * leaseMs), 'extended')
      assert.equal(await delivery.ack(), 'settled')
    }),

    scenario('X17', 'what is settled, lost or purged cannot be extended', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll([{ payload: 'settled' }, { payload: 'purged' }])
      const settled = await nextNow(queue)
      await settled.ack()
      assert.equal(await settled.extend(1_000), 'stale')
      const purged = await nextNow(queue)
      await queue.purge({ state: 'claimed' })
      assert.equal(await purged.extend(1_000), 'stale')
      const { delivery, leaseMs } = await claimed(bench, 100)
      block(1.5 * leaseMs)
      assert.equal(await delivery.extend(1_000), 'stale')
    }),

    ...[0, -1, Number.NaN, Number.POSITIVE_INFINITY].map((ms) =>
      scenario('X17', `an extension by ${ms} ms is refused`, async (bench) => {
        const { delivery } = await claimed(bench, 5_000)
        await assert.rejects(delivery.extend(ms), InvalidOptionError)
        assert.equal(await delivery.ack(), 'settled')
      }),
    ),

    scenario('X18', 'progress is shown by a listing in another process, and told in events', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 300)
      const queue = bench.queue({ leaseMs })
      const peer = await bench.peer(queue)
      await queue.enqueue('a')
      const source = queue.source()
      const events = recorded(source)
      const delivery = await firstOf(source)
      delivery.progress({ done: 1, of: 3 })
      delivery.progress({ done: 2, of: 3 })
      await until('it is shown', async () => {
        const [shown] = await all(peer.peek({ state: 'claimed' }))
        return JSON.stringify(shown?.progress) === '{"done":2,"of":3}'
      })
      const told = events.flatMap((event) => (event.type === 'progress' ? [event.value] : []))
      assert.deepEqual(told, [
        { done: 1, of: 3 },
        { done: 2, of: 3 },
      ])
      await delivery.ack()
    }),
  ],
}

/** Lets nothing else in this process run for so long. */
function block(ms: number): void {
  const clock = stopwatch()
  while (clock() < ms) Math.sqrt(clock())
}

async function claimed(bench: Bench, lease: number) {
  const leaseMs = shortLeaseMs(bench.features, lease)
  const queue = bench.queue({ leaseMs })
  await queue.enqueue('a')
  return { queue, leaseMs, delivery: await nextNow(queue) }
}

/** The first delivery of a source that is asked for no other. */
async function firstOf<T>(source: QueueSource<T>): Promise<Delivery<T>> {
  const { value } = await soon('a delivery', source[Symbol.asyncIterator]().next())
  assert.ok(value)
  return value
}
