import assert from 'node:assert/strict'
import { BackendError, BackendUnavailableError } from '../../errors.js'
import type { Queue } from '../../queue.js'
import type { FaultyBackend } from '../faulty-backend.js'
import { hinted } from './hinted.js'
import { type Concern, scenario } from './kit.js'
import { assertDepth, next, nextNow, recorded, throughout } from './steps.js'
import { all, pass, SLACK_MS, soon, until, within } from './wait.js'

/** The bound of a call that has none of its own, and a little. */
const CALL_MS = 11_500

/** A backend that cannot be reached is no empty queue, and comes back. */
export const outages: Concern = {
  name: 'outages',
  scenarios: [
    scenario(
      'N78',
      'a bounded wait on a backend that is down throws, where one on an empty queue does not',
      async (bench) => {
        const queue = bench.queue()
        assert.equal(await queue.receive({ timeoutMs: 100 }), undefined)
        const recover = down(bench.backend)
        await assert.rejects(soon('the wait ends', queue.receive({ timeoutMs: 100 })), BackendUnavailableError)
        await assert.rejects(soon('the wait ends', queue.take({ timeoutMs: 100 })), BackendUnavailableError)
        recover()
        assert.equal(await queue.receive({ timeoutMs: 100 }), undefined)
      },
    ),

    scenario('N78', 'a wait that began before the backend went down does not call it empty either', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      const wait = queue.receive({ timeoutMs: 300 })
      await pass(30)
      const recover = down(bench.backend)
      await peer.enqueue('a')
      await assert.rejects(soon('the wait ends', wait), BackendUnavailableError)
      recover()
      assert.equal((await next(queue)).payload, 'a')
    }),

    scenario(
      'N78',
      'calls on a backend that stays down give up with a typed error, and each in time',
      async (bench) => {
        const queue = bench.queue()
        await queue.enqueue('a', { id: 'a' })
        const recover = down(bench.backend)
        const calls: Record<string, Promise<unknown>> = {
          tryReceive: queue.tryReceive(),
          tryTake: queue.tryTake(),
          'receive, timeoutMs 0': queue.receive({ timeoutMs: 0 }),
          stats: queue.stats(),
          size: queue.size(),
          enqueue: queue.enqueue('b'),
          peek: all(queue.peek()),
          deadLetters: all(queue.deadLetters),
          cancel: queue.cancel('a'),
          outcome: queue.outcome('a', { timeoutMs: 0 }),
          purge: queue.purge(),
          pause: queue.pause(),
        }
        await Promise.all(
          Object.entries(calls).map(([name, call]) =>
            assert.rejects(within(CALL_MS, name, call), BackendUnavailableError, name),
          ),
        )
        recover()
        await assertDepth(queue, { ready: 1, claimed: 0, purgedTotal: 0, paused: false })
      },
    ),

    scenario('N78', 'a source says when the backend is gone and when it is back, and goes on', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      const source = queue.source()
      const events = recorded(source)
      const seen: string[] = []
      const subscription = source.subscribe(({ payload }) => void seen.push(payload))
      await pass(20)
      const recover = down(bench.backend)
      await peer.enqueue('a')
      await until('the outage is told', () => events.some(({ type }) => type === 'reconnecting'))
      assert.deepEqual(seen, [])
      recover()
      await until('the source goes on', () => seen.length === 1)
      await until('the return is told', () => events.some(({ type }) => type === 'reconnected'))
      assert.equal(events.filter(({ type }) => type === 'reconnecting').length, 1)
      subscription.unsubscribe()
    }),

    scenario('N78', 'a source that ends with an empty queue does not take an outage for one', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      const recover = down(bench.backend)
      let ended = false
      const collecting = (async () => {
        for await (const delivery of queue.source({ until: 'empty' })) await delivery.ack()
        ended = true
      })()
      await throughout(150, () => !ended, 'it waits')
      recover()
      await soon('it ends', collecting)
      await assertDepth(queue, { ready: 0, ackedTotal: 1 })
    }),

    scenario('N78', 'a refusal of the backend is told as it is, and not asked again', async (bench) => {
      const queue = bench.queue()
      await queue.stats()
      for (const verb of ['enqueue', 'claim', 'cancel', 'pause'] as const) {
        const error = new BackendError('no space')
        bench.backend.inject({ verb, kind: 'fail-request', error })
        const before = bench.backend.calls.length
        const calls = {
          enqueue: () => queue.enqueue('a'),
          claim: () => queue.tryReceive(),
          cancel: () => queue.cancel('a'),
          pause: () => queue.pause(),
        }
        await assert.rejects(calls[verb](), (rejected) => rejected === error, verb)
        assert.equal(bench.backend.calls.slice(before).filter((call) => call === verb).length, 1, verb)
      }
    }),

    scenario(
      'N79',
      'a backend that was away while a consumer was parked delivers what came meanwhile',
      async (bench) => {
        const queue = bench.queue()
        const peer = await bench.peer(queue)
        const wait = next(queue)
        await pass(20)
        const recover = down(bench.backend)
        await peer.enqueue('a')
        await pass(100)
        recover()
        const delivery = await within(4_000, 'the wait ends', wait)
        assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
      },
    ),

    scenario(
      'N79',
      'a consumer that is started while the backend is away gets its message when that is back',
      async (bench) => {
        const queue = bench.queue()
        const peer = await bench.peer(queue)
        await peer.enqueue('a')
        const recover = down(bench.backend)
        const wait = next(queue)
        await pass(150)
        recover()
        assert.equal((await within(4_000, 'the wait ends', wait)).payload, 'a')
      },
    ),

    scenario('N79', 'a wait can be cancelled while the backend is away, at once', async (bench) => {
      const queue = bench.queue()
      const recover = down(bench.backend)
      const controller = new AbortController()
      const wait = assert.rejects(queue.receive({ signal: controller.signal }), { name: 'AbortError' })
      await pass(50)
      controller.abort()
      await within(SLACK_MS, 'the wait ends', wait)
      recover()
      await queue.enqueue('a')
      const delivery = await nextNow(queue)
      assert.deepEqual([delivery.attempt, delivery.deliveryCount], [1, 1])
    }),

    scenario('N79', 'a hint that was lost with the connection is made up for by reading again', async (bench) => {
      const hints = hinted(bench.backend)
      const queue = bench.queue({ backend: hints.backend })
      const peer = await bench.peer(queue)
      const wait = next(queue)
      await pass(20)
      hints.mute(true)
      await peer.enqueue('a')
      await pass(50)
      hints.mute(false)
      hints.tell({ kind: 'down', error: new BackendUnavailableError('gone') })
      hints.tell({ kind: 'up' })
      assert.equal((await within(4_000, 'the wait ends', wait)).payload, 'a')
    }),

    scenario(
      'N82',
      'whoever waits when a subscription is given up for good gets an error, or goes on without it',
      async (bench) => {
        const hints = hinted(bench.backend)
        const queue = bench.queue({ backend: hints.backend })
        const peer = await bench.peer(queue)
        await queue.enqueue('held', { id: 'held' })
        const held = await nextNow(peer)
        const waits = {
          receive: queue.receive().then((delivery) => delivery?.payload),
          source: firstOf(queue),
          outcome: queue.outcome('held').then(({ state }) => state),
        }
        const results = Object.entries(waits).map(async ([name, wait]) => [name, await wait.catch((error) => error)])
        await pass(20)
        const given = new BackendError('the watch was given up')
        hints.end(given)
        await pass(20)
        await peer.enqueueAll([{ payload: 'new' }, { payload: 'new' }])
        await held.ack()
        const expected: unknown[] = ['new', 'done', given]
        for (const [name, result] of await soon('somebody hangs', Promise.all(results)))
          assert.ok(expected.includes(result), `${name}: ${result}`)
      },
    ),

    scenario(
      'X16',
      'a queue that is made and dropped while the backend is down leaves nothing unhandled',
      async (bench) => {
        const rejections: unknown[] = []
        const note = (error: unknown) => rejections.push(error)
        process.on('unhandledRejection', note)
        try {
          const recover = down(bench.backend)
          const queue = bench.queue()
          const subscription = queue.source().subscribe({ error: () => {} })
          await pass(60)
          subscription.unsubscribe()
          await within(6_000, 'the queue closes', queue.close({ graceMs: 0 }))
          await pass(20)
          recover()
        } finally {
          process.off('unhandledRejection', note)
        }
        assert.deepEqual(rejections, [])
      },
    ),
  ],
}

/** The first payload of a source, or its error. */
function firstOf(queue: Queue<string>): Promise<string> {
  return new Promise((resolve, reject) => {
    queue.source().subscribe({ next: ({ payload }) => resolve(payload), error: reject })
  })
}

/** Every call fails as if nobody were there, until the returned function is called. */
function down(backend: FaultyBackend): () => void {
  const fault = backend.inject({ verb: '*', kind: 'fail-request', times: Number.POSITIVE_INFINITY })
  return () => fault.remove()
}
