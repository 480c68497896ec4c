import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import { BackendError, LimitError, QueueFullError } from '../../errors.js'
import { deadLetter } from '../../operators/dead-letter.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import { run } from '../../sinks/run.js'
import { toQueue } from '../../sinks/to-queue.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, next, nextNow, payloads } from './steps.js'
import { pass, range, shortLeaseMs, soon, until, within } from './wait.js'

/** A forward is an ack here and an enqueue there, or neither. */
export const forwarding: Concern = {
  name: 'forwarding',
  scenarios: [
    scenario('X26', 'a forwarded message is done here and new there, with all that it was given', async (bench) => {
      const { queue, target, delivery } = await claimed(bench)
      const options = { id: 'moved', priority: 7, key: 'k', headers: { trace: '1' } }
      assert.equal(await delivery.forward(target, { from: delivery.payload }, options), 'settled')
      await assertDepth(queue, { ready: 0, claimed: 0, dead: 0, forwardedTotal: 1, ackedTotal: 0 })
      const moved = await nextNow(target)
      assert.deepEqual([moved.id, moved.payload, moved.priority, moved.key], ['moved', { from: 'a' }, 7, 'k'])
      assert.deepEqual({ ...moved.headers }, { trace: '1' })
      assert.deepEqual([moved.attempt, moved.deliveryCount], [1, 1])
    }),

    scenario('X26', 'a forward wakes who waits there, and keeps a delay there', async (bench) => {
      const { target, delivery, queue } = await claimed(bench)
      const wait = next(target)
      await pass(10)
      await delivery.forward(target, { from: 'x' })
      assert.deepEqual((await soon('the waiter wakes', wait)).payload, { from: 'x' })
      await queue.enqueue('b')
      await (await nextNow(queue)).forward(target, { from: 'y' }, { delayMs: 60_000 })
      await assertDepth(target, { ready: 0, delayed: 1, claimed: 1 })
    }),

    ...(['fail-request', 'fail-reply'] as const).map((kind) =>
      scenario(
        'X26',
        `a forward whose ${kind === 'fail-request' ? 'request' : 'reply'} is lost moves the message once`,
        async (bench) => {
          const { queue, target, delivery } = await claimed(bench)
          bench.backend.inject({ verb: 'settle', kind, times: 2 })
          assert.equal(await soon('it is confirmed', delivery.forward(target, { from: 'a' })), 'settled')
          await assertDepth(queue, { claimed: 0, ready: 0, forwardedTotal: 1 })
          await assertDepth(target, { ready: 1, enqueuedTotal: 1 })
        },
      ),
    ),

    scenario('X26', 'a forward that the backend refuses is in neither half done', async (bench) => {
      const { queue, target, delivery } = await claimed(bench)
      const error = new BackendError('read-only')
      bench.backend.inject({ verb: 'settle', kind: 'fail-request', error })
      await assert.rejects(delivery.forward(target, { from: 'a' }), (rejected) => rejected === error)
      await assertDepth(queue, { claimed: 1, forwardedTotal: 0 })
      await assertDepth(target, { enqueuedTotal: 0 })
    }),

    scenario('X26', 'a forward under a claim that is gone stores nothing there', async (bench) => {
      const { queue, target, delivery } = await claimed(bench)
      await queue.purge({ state: 'claimed' })
      assert.equal(await delivery.forward(target, { from: 'a' }), 'stale')
      await assertDepth(target, { enqueuedTotal: 0 })
      await assertDepth(queue, { forwardedTotal: 0, purgedTotal: 1 })
    }),

    scenario('X26', 'a message is forwarded once, however often it is asked for', async (bench) => {
      const { target, delivery } = await claimed(bench)
      const answers = await Promise.all(range(4).map(() => delivery.forward(target, { from: 'a' })))
      assert.deepEqual(answers.sort(), ['already-settled', 'already-settled', 'already-settled', 'settled'])
      await assertDepth(target, { ready: 1 })
    }),

    scenario('X26', 'a forward under an id that is there already ends here and adds nothing there', async (bench) => {
      const { queue, target, delivery } = await claimed(bench)
      await target.enqueue({ from: 'before' }, { id: 'same' })
      assert.equal(await delivery.forward(target, { from: 'a' }, { id: 'same' }), 'settled')
      await assertDepth(target, { ready: 1, enqueuedTotal: 1 })
      await assertDepth(queue, { claimed: 0, forwardedTotal: 1 })
    }),

    scenario('X26', 'a message can be forwarded to its own queue, full as that is', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 1 } })
      await queue.enqueue('a')
      assert.equal(await (await nextNow(queue)).forward(queue, 'b'), 'settled')
      assert.deepEqual(await payloads(queue), ['b'])
      await assertDepth(queue, { enqueuedTotal: 2, forwardedTotal: 1, ackedTotal: 1 })
    }),

    scenario('X26', 'a forward to a queue that nobody has opened yet makes it', async (bench) => {
      const { target, delivery } = await claimed(bench)
      await delivery.forward(target, { from: 'a' })
      const peer = await bench.peer(target, { maxDeliveries: 9, limits: { maxLength: 3 } }).catch(() => undefined)
      await assertDepth(target, { ready: 1 })
      assert.ok(peer)
    }),

    scenario('H2', 'a forward to a full queue is refused, and the message stays claimed', async (bench) => {
      const { queue, delivery } = await claimed(bench)
      const target = await fullQueue(bench)
      await assert.rejects(delivery.forward(target, 'a'), (error) => {
        assert.ok(error instanceof QueueFullError, `${error}`)
        return error.queue === target.name
      })
      assert.equal(delivery.settled, false)
      await assertDepth(queue, { claimed: 1, forwardedTotal: 0 })
      await assertDepth(target, { ready: 1, enqueuedTotal: 1 })
      await (await nextNow(target)).ack()
      assert.equal(await delivery.forward(target, 'a'), 'settled')
    }),

    scenario(
      'H2',
      'a forward of a payload that is too large there is refused, and the message stays claimed',
      async (bench) => {
        const { queue, delivery } = await claimed(bench)
        const target = bench.queue({ limits: { maxPayloadBytes: 10 } })
        await assert.rejects(delivery.forward(target, 'x'.repeat(50)), LimitError)
        assert.equal(await delivery.ack(), 'settled')
        await assertDepth(queue, { ackedTotal: 1, forwardedTotal: 0 })
      },
    ),

    scenario(
      'H2',
      'a dead-letter queue that is full keeps no failure and loses none: the source has it still',
      async (bench) => {
        const queue = bench.queue()
        const refused = await fullQueue(bench)
        await queue.enqueue('a')
        const errors: unknown[] = []
        const source = queue.source()
        source.events.subscribe((event) => event.type === 'error' && errors.push(event.error))
        const fail = () => Promise.reject(new Error('no'))
        const flow = pipe(source, deadLetter({ to: refused }), mergeMap(fail, 1))
        const subscription = flow.subscribe()
        await until('the refusal is told', () => errors.some((error) => error instanceof QueueFullError))
        subscription.unsubscribe()
        await soon('the source stops', source.stop({ graceMs: 0 }))
        const { ready, delayed, claimed: held, dead } = await queue.stats()
        assert.equal(ready + delayed + held + dead, 1)
        await assertDepth(refused, { ready: 1, enqueuedTotal: 1 })
      },
    ),

    scenario('X27', 'a dead-letter policy moves a failure to the queue it names, in one step', async (bench) => {
      const queue = bench.queue()
      const refused = bench.queue()
      await queue.enqueueAll([{ payload: 'good' }, { payload: 'bad', id: 'bad' }])
      const handler = ({ payload }: Delivery<string>) => {
        if (payload === 'bad') throw new RangeError('refused')
      }
      await run(pipe(queue.source({ until: 'idle' }), deadLetter({ to: refused }), mergeMap(handler, 1)))
      await assertDepth(queue, { ready: 0, claimed: 0, dead: 0, ackedTotal: 1, forwardedTotal: 1 })
      assert.deepEqual(await payloads(refused), ['bad'])
      assert.deepEqual(await queue.outcome('bad'), { state: 'dead', reason: 'RangeError: refused' })
    }),

    scenario('X27', 'a pipeline of two queues loses and doubles nothing when replies are lost', async (bench) => {
      const queue = bench.queue<number>()
      const target = bench.queue<number>()
      await queue.enqueueAll(range(60).map((payload) => ({ payload })))
      for (const nth of [2, 5, 9, 17]) {
        bench.backend.inject({ verb: 'settle', kind: nth % 2 ? 'fail-reply' : 'fail-request', nth })
        bench.backend.inject({ verb: 'claim', kind: nth % 2 ? 'fail-request' : 'fail-reply', nth })
      }
      const double = ({ payload }: Delivery<number>) => payload * 2
      await within(15_000, 'all are moved', toQueue(queue.source({ until: 'idle' }), target, double))
      assert.deepEqual(
        await payloads(target),
        range(60).map((n) => n * 2),
      )
      await assertDepth(queue, { ready: 0, claimed: 0, forwardedTotal: 60 })
    }),

    scenario(
      'X28',
      'a forward to another backend stores there first, under an id that a repeat finds again',
      async (bench) => {
        const queue = bench.queue({ leaseMs: shortLeaseMs(bench.features, 200) })
        const target = bench.queue()
        const elsewhere = await bench.peer(target)
        await queue.enqueue('a', { id: 'a' })
        const first = await nextNow(queue)
        // Stored there, and then the process dies before it can ack.
        const faults = (['settle', 'renew'] as const).map((verb) =>
          bench.backend.inject({ verb, kind: 'fail-request', times: Number.POSITIVE_INFINITY }),
        )
        first.forward(elsewhere, 'moved').catch(() => {})
        await until('it is stored there', async () => (await elsewhere.stats()).ready === 1)
        const again = await soon('the claim lapses', next(await bench.peer(queue)))
        for (const fault of faults) fault.remove()
        assert.equal(await again.forward(target, 'moved'), 'settled')
        await assertDepth(elsewhere, { ready: 1, enqueuedTotal: 1 })
      },
    ),
  ],
}

async function claimed(bench: Bench) {
  const queue = bench.queue()
  const target = bench.queue<unknown>()
  await queue.enqueue('a', { id: 'a' })
  return { queue, target, delivery: await nextNow(queue) }
}

async function fullQueue(bench: Bench) {
  const queue = bench.queue({ limits: { maxLength: 1 } })
  await queue.enqueue('there already')
  return queue
}
