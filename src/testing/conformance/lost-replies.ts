import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import type { Queue } from '../../queue.js'
import type { Verb } from '../faulty-backend.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, bury, nextNow } from './steps.js'
import { callsOf, soon, within } from './wait.js'

/** Whatever is lost on the way, what was asked for happens once, and the answer is the first one. */
export const lostReplies: Concern = {
  name: 'lost requests and replies',
  scenarios: [
    ...changes().flatMap((change) =>
      (['fail-request', 'fail-reply'] as const).map((kind) =>
        scenario('X33', `${change.name} happens once and is answered alike (${kind}, twice)`, async (bench) => {
          const check = await change.prepare(bench)
          bench.backend.inject({ verb: change.verb, kind, times: 2 })
          const calls = callsOf(bench.backend, change.verb)
          await soon('it is answered', check())
          assert.ok(callsOf(bench.backend, change.verb) >= calls + 3, 'it was not asked for again')
        }),
      ),
    ),

    scenario('X34', 'every change happens once and is answered though nothing comes back at first', silent),

    scenario('X34', 'an answer that comes after the repeat was answered changes nothing', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      const delivery = await nextNow(queue)
      const fault = bench.backend.inject({ verb: 'settle', kind: 'hold-request' })
      const settled = delivery.requeue()
      assert.equal(await within(5_000, 'the repeat is answered', settled), 'settled')
      const again = await nextNow(queue)
      assert.equal(again.attempt, 2)
      fault.release()
      assert.equal(await again.ack(), 'settled')
      await assertDepth(queue, { ready: 0, claimed: 0, ackedTotal: 1 })
    }),
  ],
}

/** A change, and what must be true after it, asked for with a fault in place. */
interface Change {
  readonly name: string
  readonly verb: Verb
  prepare(bench: Bench): Promise<() => Promise<void>>
}

function changes(): Change[] {
  return [
    {
      name: 'an enqueue',
      verb: 'enqueue',
      async prepare(bench) {
        const queue = await opened(bench)
        return async () => {
          assert.deepEqual(await queue.enqueue('a', { id: 'a' }), { id: 'a', status: 'enqueued' })
          await assertDepth(queue, { ready: 1, enqueuedTotal: 1 })
        }
      },
    },
    {
      name: 'a batch',
      verb: 'enqueue',
      async prepare(bench) {
        const queue = await opened(bench)
        return async () => {
          const batch = ['a', 'b', 'a'].map((id) => ({ id, payload: id }))
          const statuses = (await queue.enqueueAll(batch)).map(({ status }) => status)
          assert.deepEqual(statuses, ['enqueued', 'enqueued', 'duplicate'])
          await assertDepth(queue, { ready: 2, enqueuedTotal: 2 })
        }
      },
    },
    {
      name: 'a claim',
      verb: 'claim',
      async prepare(bench) {
        const queue = await opened(bench)
        await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
        return async () => {
          const delivery = await nextNow(queue)
          assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
          await assertDepth(queue, { ready: 1, claimed: 1 })
          assert.equal(await delivery.ack(), 'settled')
        }
      },
    },
    settlement('an ack', (delivery) => delivery.ack('result'), { ackedTotal: 1 }),
    settlement('a requeue', (delivery) => delivery.requeue(), { ready: 1 }, 2),
    settlement('a delayed requeue', (delivery) => delivery.requeue({ delayMs: 60_000 }), { delayed: 1 }),
    settlement('a release', (delivery) => delivery.release(), { ready: 1 }, 1),
    settlement('a dead-letter', (delivery) => delivery.deadLetter('no'), { dead: 1 }),
    deadVerb('a requeue of a dead letter', 'requeueDead', (queue) => queue.deadLetters.requeue('x'), { ready: 1 }),
    deadVerb('a purge of a dead letter', 'purgeDead', (queue) => queue.deadLetters.purge('x'), { purgedTotal: 1 }),
    {
      name: 'a pause',
      verb: 'pause',
      async prepare(bench) {
        const queue = await opened(bench)
        return async () => {
          await queue.pause()
          await assertDepth(queue, { paused: true })
        }
      },
    },
    {
      name: 'a change of settings',
      verb: 'configure',
      async prepare(bench) {
        const queue = await opened(bench)
        return async () => {
          await queue.configure({ maxDeliveries: 9 })
          await assertDepth(await bench.peer(queue, { maxDeliveries: 9 }), { ready: 0 })
        }
      },
    },
    {
      name: 'the first use of a queue',
      verb: 'settings',
      async prepare(bench) {
        const queue = bench.queue({ maxDeliveries: 8 })
        return async () => {
          await queue.enqueue('a')
          await assertDepth(await bench.peer(queue, { maxDeliveries: 8 }), { ready: 1 })
        }
      },
    },
  ]
}

type Expected = Parameters<typeof assertDepth>[1]

function settlement(
  name: string,
  settle: (delivery: Delivery<string>) => Promise<unknown>,
  expected: Expected,
  attempt?: number,
): Change {
  return {
    name,
    verb: 'settle',
    async prepare(bench) {
      const queue = await opened(bench)
      await queue.enqueue('a', { id: 'a' })
      const delivery = await nextNow(queue)
      return async () => {
        assert.equal(await settle(delivery), 'settled')
        await assertDepth(queue, { ready: 0, delayed: 0, dead: 0, claimed: 0, enqueuedTotal: 1, ...expected })
        if (attempt !== undefined) assert.equal((await nextNow(queue)).attempt, attempt)
      }
    },
  }
}

function deadVerb(
  name: string,
  verb: Verb,
  act: (queue: Queue<string>) => Promise<boolean>,
  expected: Expected,
): Change {
  return {
    name,
    verb,
    async prepare(bench) {
      const queue = await opened(bench)
      await bury(queue, ['x'])
      return async () => {
        assert.equal(await act(queue), true)
        await assertDepth(queue, { dead: 0, ready: 0, ...expected })
        assert.equal(await act(queue), false)
      }
    },
  }
}

/** A queue whose settings are stored, so that a fault meets the call that it is meant for. */
async function opened(bench: Bench): Promise<Queue<string>> {
  const queue = bench.queue()
  await queue.stats()
  return queue
}

/**
 * All verbs at once, each on queues of its own, since a silent call is given some seconds before it is sent again. The
 * first request of each verb gets nowhere, and so does the reply to the second.
 */
async function silent(bench: Bench): Promise<void> {
  const wanted = new Map<Verb, Change>()
  // What a claim does is seen where the network is cut.
  for (const change of changes())
    if (change.verb !== 'claim' && !wanted.has(change.verb)) wanted.set(change.verb, change)
  const checks: (() => Promise<void>)[] = []
  for (const change of wanted.values()) checks.push(await change.prepare(bench), await change.prepare(bench))
  for (const verb of wanted.keys()) {
    bench.backend.inject({ verb, kind: 'drop-request' })
    bench.backend.inject({ verb, kind: 'drop-reply', nth: 2 })
  }
  checks.push(() => goneMeanwhile(bench))
  await within(15_000, 'all are answered', Promise.all(checks.map((check) => check())))
}

/** A message that is stored, handled and purged before its producer hears of it does not come back by the repeat. */
async function goneMeanwhile(bench: Bench): Promise<void> {
  const backend = await bench.client()
  const queue = bench.queue({ backend })
  await queue.stats()
  const peer = await bench.peer(queue)
  const fault = backend.inject({ verb: 'enqueue', kind: 'drop-reply' })
  const stored = queue.enqueue('a')
  await soon('it is stored', fault.reached)
  await (await nextNow(peer)).ack()
  await peer.purge()
  assert.equal((await stored).status, 'enqueued')
  await assertDepth(peer, { ready: 0, enqueuedTotal: 1, ackedTotal: 1 })
}
