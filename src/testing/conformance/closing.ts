import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import { ClosedError } from '../../errors.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { run } from '../../sinks/run.js'
import {
  assertDepth,
  eventually,
  gate,
  LATE_MS,
  leaseOf,
  listed,
  next,
  nextNow,
  pass,
  range,
  stopwatch,
  within,
} from './deadlines.js'
import { type Concern, scenario } from './kit.js'

const NOTHING = { released: 0, settledDuringGrace: 0, abandoned: 0 }

/** A queue that closes ends every wait, gives everything back and takes nothing more. */
export const closing: Concern = {
  name: 'closing',
  scenarios: [
    scenario('N65', 'closing ends every kind of wait with a closed error, and takes nothing', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueue('later', { id: 'later', delayMs: 60_000 })
      const waits = [
        queue.receive(),
        queue.receive({ timeoutMs: 60_000 }),
        queue.take(),
        queue.outcome('later'),
        listed(queue.source()),
        subscribed(queue),
        run(
          pipe(
            queue.source(),
            mergeMap(() => assert.fail('nothing is there'), 2),
          ),
        ),
      ].map((wait) => assert.rejects(wait, isClosed))
      await pass(20)
      assert.deepEqual(await within(queue.close(), 'the queue closes', LATE_MS), NOTHING)
      await within(Promise.all(waits), 'every wait ends', LATE_MS)
      await peer.enqueue('a')
      const delivery = await nextNow(peer)
      assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
    }),

    scenario('N65', 'a message that comes while the queue closes is lost to nobody', async (bench) => {
      for (const _ of range(20)) {
        const queue = bench.queue()
        const peer = await bench.peer(queue)
        const waits = range(3).map(() => queue.receive().then(identity, () => undefined))
        await pass(1)
        const [, , ...received] = await within(
          Promise.all([peer.enqueueAll([{ payload: 'a' }, { payload: 'b' }]), queue.close({ graceMs: 0 }), ...waits]),
          'everything ends',
        )
        for (const delivery of received) if (delivery) assert.equal(await delivery.ack(), 'stale')
        await assertDepth(peer, { ready: 2, claimed: 0, dead: 0, ackedTotal: 0 })
      }
    }),

    scenario('N66', 'a queue that drains lets its handlers settle before it is closed', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }, { payload: 'c' }])
      const peer = await bench.peer(queue)
      const held = gate<Delivery<string>>()
      const go = gate()
      const handler = async (delivery: Delivery<string>) => {
        held.open(delivery)
        await go.opened
      }
      const running = run(pipe(queue.source(), mergeMap(handler, 1))).catch(identity)
      const delivery = await within(held.opened, 'the handler starts')
      const closed = queue.close({ graceMs: 5_000 })
      await eventually(() => delivery.signal.aborted, 'the handler is told')
      go.open()
      const released = await within(closed, 'the queue closes', LATE_MS)
      assert.deepEqual(released, { released: 0, settledDuringGrace: 1, abandoned: 0 })
      await within(running, 'the run ends')
      await assertDepth(peer, { ready: 2, claimed: 0, ackedTotal: 1 })
    }),

    scenario('N66', 'a settlement during the grace of a close counts, one after it is stale', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
      const peer = await bench.peer(queue)
      const [first, second] = [await nextNow(queue), await nextNow(queue)]
      const closed = queue.close({ graceMs: 150 })
      await eventually(() => first.signal.aborted, 'the holder is told')
      assert.equal(await first.ack(), 'settled')
      await within(closed, 'the queue closes')
      assert.equal(await second.ack(), 'stale')
      await assertDepth(peer, { ready: 1, claimed: 0, ackedTotal: 1 })
    }),

    scenario('N66', 'a queue that closes at once gives everything back, not after the lease', async (bench) => {
      const queue = bench.queue({ leaseMs: 60_000 })
      await queue.enqueueAll(['a', 'b', 'c'].map((payload) => ({ payload })))
      const peer = await bench.peer(queue)
      const held = [await nextNow(queue), await nextNow(queue)]
      const waiting = stopwatch()
      assert.deepEqual(await within(queue.close({ graceMs: 0 }), 'the queue closes'), { ...NOTHING, released: 2 })
      assert.ok(waiting() < LATE_MS, `closing took ${waiting()} ms`)
      const order = [await nextNow(peer), await nextNow(peer), await nextNow(peer)]
      assert.deepEqual(
        order.map(({ payload, attempt, deliveryCount }) => [payload, attempt, deliveryCount]),
        [
          ['a', 1, 2],
          ['b', 1, 2],
          ['c', 1, 1],
        ],
      )
      for (const delivery of held) assert.equal(await delivery.ack(), 'stale')
      for (const delivery of order) assert.equal(await delivery.ack(), 'settled')
    }),

    scenario(
      'N67',
      'a claim that is granted while the queue closes is given back as if it had not been',
      async (bench) => {
        const queue = bench.queue({ leaseMs: 60_000 })
        await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
        const peer = await bench.peer(queue)
        const fault = bench.backend.inject({ verb: 'claim', kind: 'hold-reply' })
        const wait = assert.rejects(queue.receive(), isClosed)
        await within(fault.reached, 'the claim is granted')
        await assertDepth(peer, { claimed: 1 })
        const closed = queue.close()
        await pass(20)
        fault.release()
        assert.deepEqual(await within(closed, 'the queue closes', LATE_MS), { ...NOTHING, released: 1 })
        await within(wait, 'the wait ends')
        const delivery = await nextNow(peer)
        assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
      },
    ),

    scenario('N67', 'a claim whose answer never comes does not keep the queue from closing', async (bench) => {
      const leaseMs = leaseOf(bench.features, 150)
      const queue = bench.queue({ leaseMs })
      await queue.enqueue('a')
      const peer = await bench.peer(queue)
      const fault = bench.backend.inject({ verb: 'claim', kind: 'drop-reply', times: Number.POSITIVE_INFINITY })
      const wait = assert.rejects(queue.receive(), isClosed)
      await within(fault.reached, 'the claim is granted')
      const released = await within(queue.close({ graceMs: 0 }), 'the queue closes', leaseMs + LATE_MS)
      assert.deepEqual(released, { ...NOTHING, abandoned: 1 })
      await within(wait, 'the wait ends')
      assert.equal((await next(peer)).payload, 'a')
    }),

    scenario(
      'N68',
      'after close every method refuses with a closed error, and nothing reaches the backend',
      async (bench) => {
        const queue = bench.queue()
        await queue.enqueue('a')
        await queue.close()
        const calls = bench.backend.calls.length
        const attempts: Record<string, () => Promise<unknown>> = {
          enqueue: () => queue.enqueue('b'),
          enqueueAll: () => queue.enqueueAll([{ payload: 'b' }]),
          receive: () => queue.receive(),
          tryReceive: () => queue.tryReceive(),
          take: () => queue.take({ timeoutMs: 10 }),
          tryTake: () => queue.tryTake(),
          stats: () => queue.stats(),
          size: () => queue.size(),
          pause: () => queue.pause(),
          resume: () => queue.resume(),
          cancel: () => queue.cancel('a'),
          outcome: () => queue.outcome('a'),
          purge: () => queue.purge(),
          configure: () => queue.configure({ maxDeliveries: 3 }),
          source: async () => listed(queue.source()),
          peek: async () => listed(queue.peek()),
          deadLetters: () => listed(queue.deadLetters),
          'deadLetters.requeue': () => queue.deadLetters.requeue('a'),
          'deadLetters.purge': () => queue.deadLetters.purge('a'),
          'deadLetters.requeueAll': () => queue.deadLetters.requeueAll(),
          'deadLetters.purgeAll': () => queue.deadLetters.purgeAll(),
        }
        for (const [name, attempt] of Object.entries(attempts)) await assert.rejects(attempt(), isClosed, name)
        assert.equal(bench.backend.calls.length, calls)
      },
    ),

    scenario('N68', 'closing again answers the same, also while the first close is under way', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      await nextNow(queue)
      const both = [queue.close({ graceMs: 20 }), queue.close({ graceMs: 0 })]
      const [first, second] = await within(Promise.all(both), 'both closes end')
      assert.deepEqual(first, { ...NOTHING, released: 1 })
      assert.deepEqual(second, first)
      assert.deepEqual(await queue.close(), first)
    }),

    scenario('N68', 'a source that was made before the close refuses too', async (bench) => {
      const queue = bench.queue()
      const source = queue.source()
      const iterator = source[Symbol.asyncIterator]()
      await queue.close()
      await assert.rejects(within(iterator.next(), 'next ends'), isClosed)
      await assert.rejects(within(listed(source), 'the loop ends'), isClosed)
      assert.deepEqual(await within(source.stop(), 'stop ends'), NOTHING)
    }),

    scenario('N68', 'every settlement of a delivery answers stale after the close', async (bench) => {
      const queue = bench.queue()
      const target = bench.queue()
      await queue.enqueueAll(range(6).map((n) => ({ payload: String(n) })))
      const held: Delivery<string>[] = []
      for (const _ of range(6)) held.push(await nextNow(queue))
      await queue.close({ graceMs: 0 })
      const [ack, requeue, deadLetter, release, fail, forward] = held
      assert.equal(await ack?.ack(), 'stale')
      assert.equal(await requeue?.requeue(), 'stale')
      assert.equal(await deadLetter?.deadLetter('no'), 'stale')
      assert.equal(await release?.release(), 'stale')
      assert.equal(await fail?.fail(new Error('no')), 'stale')
      assert.equal(await forward?.forward(target, 'no'), 'stale')
      assert.equal(await ack?.extend(1_000), 'stale')
      await assertDepth(target, { enqueuedTotal: 0 })
    }),

    scenario('X6', 'closing the backend closes its queues, and gives back what they hold', async (bench) => {
      const queue = bench.queue()
      const other = bench.queue()
      await queue.enqueue('a')
      const delivery = await nextNow(queue)
      const wait = assert.rejects(other.receive(), isClosed)
      await pass(10)
      const closed = bench.backend.close()
      await eventually(() => delivery.signal.aborted, 'the holder is told')
      assert.equal(await delivery.ack(), 'settled')
      await within(closed, 'the backend closes')
      await within(wait, 'the wait ends')
      await assert.rejects(queue.stats(), isClosed)
    }),

    scenario('X7', 'what one queue object closes is open for another of the same queue', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueue('a', { id: 'a' })
      await queue.close()
      assert.equal((await peer.enqueue('again', { id: 'a' })).status, 'duplicate')
      assert.equal((await nextNow(peer)).payload, 'a')
    }),
  ],
}

function isClosed(error: unknown): boolean {
  assert.ok(error instanceof ClosedError, `${error} is no ClosedError`)
  assert.equal(error.code, 'ERR_MILLRACE_CLOSED')
  return true
}

function subscribed(queue: Queue<string>): Promise<void> {
  return new Promise((resolve, reject) => {
    queue.source().subscribe({ error: reject, complete: resolve })
  })
}

function identity<T>(value: T): T {
  return value
}
