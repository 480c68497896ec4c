import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import { ClosedError } from '../../errors.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { run } from '../../sinks/run.js'
import { type Concern, scenario } from './kit.js'
import { assertDepth, gate, next, nextNow, stopwatch } from './steps.js'
import { all, pass, range, SLACK_MS, shortLeaseMs, soon, until, within } from './wait.js'

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
        all(queue.source()),
        subscribed(queue),
        run(
          pipe(
            queue.source(),
            mergeMap(() => assert.fail('nothing is there'), 2),
          ),
        ),
      ].map((wait) => assert.rejects(wait, isClosed))
      await pass(20)
      assert.deepEqual(await within(SLACK_MS, 'the queue closes', queue.close()), NOTHING)
      await within(SLACK_MS, 'every wait ends', Promise.all(waits))
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
        const [, , ...received] = await soon(
          'everything ends',
          Promise.all([peer.enqueueAll([{ payload: 'a' }, { payload: 'b' }]), queue.close({ graceMs: 0 }), ...waits]),
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
      const delivery = await soon('the handler starts', held.opened)
      const closed = queue.close({ graceMs: 5_000 })
      await until('the handler is told', () => delivery.signal.aborted)
      go.open()
      const released = await within(SLACK_MS, 'the queue closes', closed)
      assert.deepEqual(released, { released: 0, settledDuringGrace: 1, abandoned: 0 })
      await soon('the run ends', running)
      await assertDepth(peer, { ready: 2, claimed: 0, ackedTotal: 1 })
    }),

    scenario('N66', 'a settlement during the grace of a close counts, one after it is stale', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
      const peer = await bench.peer(queue)
      const [first, second] = [await nextNow(queue), await nextNow(queue)]
      const closed = queue.close({ graceMs: 150 })
      await until('the holder is told', () => first.signal.aborted)
      assert.equal(await first.ack(), 'settled')
      await soon('the queue closes', closed)
      assert.equal(await second.ack(), 'stale')
      await assertDepth(peer, { ready: 1, claimed: 0, ackedTotal: 1 })
    }),

    scenario('N66', 'a queue that closes at once gives everything back, not after the lease', async (bench) => {
      const queue = bench.queue({ leaseMs: 60_000 })
      await queue.enqueueAll(['a', 'b', 'c'].map((payload) => ({ payload })))
      const peer = await bench.peer(queue)
      const held = [await nextNow(queue), await nextNow(queue)]
      const waiting = stopwatch()
      assert.deepEqual(await soon('the queue closes', queue.close({ graceMs: 0 })), { ...NOTHING, released: 2 })
      assert.ok(waiting() < SLACK_MS, `closing took ${waiting()} ms`)
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
        await soon('the claim is granted', fault.reached)
        await assertDepth(peer, { claimed: 1 })
        const closed = queue.close()
        await pass(20)
        fault.release()
        assert.deepEqual(await within(SLACK_MS, 'the queue closes', closed), { ...NOTHING, released: 1 })
        await soon('the wait ends', wait)
        const delivery = await nextNow(peer)
        assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
      },
    ),

    scenario('N67', 'a claim whose answer never comes does not keep the queue from closing', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 150)
      const queue = bench.queue({ leaseMs })
      await queue.enqueue('a')
      const peer = await bench.peer(queue)
      const fault = bench.backend.inject({ verb: 'claim', kind: 'drop-reply', times: Number.POSITIVE_INFINITY })
      const wait = assert.rejects(queue.receive(), isClosed)
      await soon('the claim is granted', fault.reached)
      const released = await within(leaseMs + SLACK_MS, 'the queue closes', queue.close({ graceMs: 0 }))
      assert.deepEqual(released, { ...NOTHING, abandoned: 1 })
      await soon('the wait ends', wait)
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
          source: async () => all(queue.source()),
          peek: async () => all(queue.peek()),
          deadLetters: () => all(queue.deadLetters),
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
      const [first, second] = await soon('both closes end', Promise.all(both))
      assert.deepEqual(first, { ...NOTHING, released: 1 })
      assert.deepEqual(second, first)
      assert.deepEqual(await queue.close(), first)
    }),

    scenario('N68', 'a source that was made before the close refuses too', async (bench) => {
      const queue = bench.queue()
      const source = queue.source()
      const iterator = source[Symbol.asyncIterator]()
      await queue.close()
      await assert.rejects(soon('next ends', iterator.next()), isClosed)
      await assert.rejects(soon('the loop ends', all(source)), isClosed)
      assert.deepEqual(await soon('stop ends', source.stop()), NOTHING)
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
      await until('the holder is told', () => delivery.signal.aborted)
      assert.equal(await delivery.ack(), 'settled')
      await soon('the backend closes', closed)
      await soon('the wait ends', wait)
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
