import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { Observable } from 'rxjs'
import type { Delivery } from '../../delivery.js'
import type { Backend, BackendOwner } from '../../driver.js'
import { batch } from '../../operators/batch.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { run } from '../../sinks/run.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, gate, next, nextNow, stopwatch, throughout } from './steps.js'
import { callsOf, pass, range, SLACK_MS, shortLeaseMs, soon, until } from './wait.js'

/** What is claimed is what is wanted, and waiting is shared. */
export const concurrency: Concern = {
  name: 'concurrency',
  scenarios: [
    scenario('N61', 'a limit of 4 is kept and reached, in the handlers and in the backend', async (bench) => {
      const queue = await filled(bench, 100)
      const watch = await watchClaimed(bench, queue)
      const running = counter()
      const handler = async () => {
        running.enter()
        await pass(5)
        running.leave()
      }
      await soon('all are handled', run(pipe(queue.source({ until: 'empty' }), mergeMap(handler, 4))))
      assert.ok((await watch.stop()) <= 4, `${await watch.stop()} were claimed at once`)
      assert.equal(running.most, 4)
      await assertDepth(queue, { ready: 0, claimed: 0, ackedTotal: 100 })
    }),

    scenario('N61', 'two limits of 2 in two processes are 4 together', async (bench) => {
      const queue = await filled(bench, 60)
      const watch = await watchClaimed(bench, queue)
      const consumers = [queue, await bench.peer(queue)]
      const runs = consumers.map((consumer) =>
        run(
          pipe(
            consumer.source({ until: 'idle' }),
            mergeMap(() => pass(4), 2),
          ),
        ),
      )
      await soon('all are handled', Promise.all(runs))
      assert.ok((await watch.stop()) <= 4, `${await watch.stop()} were claimed at once`)
      await assertDepth(queue, { ackedTotal: 60 })
    }),

    scenario('N61', 'an RxJS subscriber never holds more than its credit', async (bench) => {
      const queue = await filled(bench, 20)
      const watch = await watchClaimed(bench, queue)
      const held: Delivery<string>[] = []
      const subscription = queue.source({ credit: 3 }).subscribe((delivery) => held.push(delivery))
      let acked = 0
      while (acked < 20) {
        await until('a delivery comes', () => held.length > 0)
        assert.ok(held.length <= 3, `${held.length} deliveries came without a settlement`)
        await held.shift()?.ack()
        acked += 1
      }
      subscription.unsubscribe()
      assert.ok((await watch.stop()) <= 3, `${await watch.stop()} were claimed at once`)
    }),

    scenario('N63', 'while one slow handler runs the next message is free for another process', (bench) =>
      secondStaysFree(bench, (queue, hold) => {
        const finished = run(pipe(queue.source(), mergeMap(hold, 1)), { graceMs: 5_000, signal: hold.stop })
        return () => finished
      }),
    ),

    scenario('N63', 'while a loop body runs the next message is free for another process', (bench) =>
      secondStaysFree(bench, (queue, hold) => {
        const finished = (async () => {
          for await (const delivery of queue.source()) {
            await hold()
            await delivery.ack()
            break
          }
        })()
        return () => finished
      }),
    ),

    scenario('N63', 'while an RxJS subscriber holds its one credit the next message is free', (bench) =>
      secondStaysFree(bench, (queue, hold) => {
        const source = queue.source()
        source.subscribe((delivery) => void hold().then(() => delivery.ack()))
        return () => source.stop()
      }),
    ),

    scenario('N64', 'a consumer that stops pulling claims no more, and keeps what it holds', async (bench) => {
      const queue = await filled(bench, 10, { leaseMs: shortLeaseMs(bench.features, 300) })
      const iterator = queue.source()[Symbol.asyncIterator]()
      const first = await soon('the first one', iterator.next())
      const claims = callsOf(bench.backend, 'claim')
      await throughout(
        3 * shortLeaseMs(bench.features, 300),
        async () => (await queue.stats()).claimed === 1,
        'one is held',
      )
      assert.equal(callsOf(bench.backend, 'claim'), claims)
      assert.equal(await first.value?.ack(), 'settled')
      await soon('the iterator ends', Promise.resolve(iterator.return?.()))
      await assertDepth(queue, { ready: 9, claimed: 0, ackedTotal: 1 })
    }),

    scenario('N64', 'leases are renewed for what is held, and not after it', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 200)
      const queue = await filled(bench, 3, { leaseMs })
      const held = await nextNow(queue)
      await until('renewals go on', () => callsOf(bench.backend, 'renew') >= 2)
      await held.ack()
      await pass(leaseMs / 2)
      const renewals = callsOf(bench.backend, 'renew')
      await pass(2 * leaseMs)
      assert.equal(callsOf(bench.backend, 'renew'), renewals)
    }),

    scenario('N64', 'a slow consumer of a full queue claims message by message', async (bench) => {
      const queue = await filled(bench, 500)
      const watch = await watchClaimed(bench, queue)
      let taken = 0
      for await (const delivery of queue.source()) {
        await pass(1)
        await delivery.ack()
        taken += 1
        if (taken === 20) break
      }
      assert.ok((await watch.stop()) <= 1, `${await watch.stop()} were claimed at once`)
      await assertDepth(queue, { ready: 480, claimed: 0 })
    }),

    scenario(
      'N85',
      'many waiters on one signal add one listener, share one subscription and leave none',
      async (bench) => {
        const shared = observed(bench.backend)
        const queue = bench.queue({ backend: shared.backend })
        const { signal, abort } = controlled()
        const warnings = await warningsDuring(async () => {
          const waits = range(20).map(() => assert.rejects(queue.receive({ signal }), { name: 'AbortError' }))
          await pass(30)
          assert.ok(getEventListeners(signal, 'abort').length <= 1, 'a listener for each waiter')
          assert.equal(shared.subscriptions(), 1)
          abort()
          await soon('all waits end', Promise.all(waits))
        })
        assert.deepEqual(warnings, [])
        assert.equal(getEventListeners(signal, 'abort').length, 0)
        assert.equal(shared.subscriptions(), 0)
        assert.equal(shared.mostSubscriptions(), 1)
      },
    ),

    scenario('N85', 'waiters on one signal that get something leave no listener either', async (bench) => {
      const shared = observed(bench.backend)
      const queue = bench.queue({ backend: shared.backend })
      const { signal } = controlled()
      const waits = range(12).map(() => queue.receive({ signal, timeoutMs: 5_000 }))
      await pass(20)
      await queue.enqueueAll(range(12).map((n) => ({ payload: String(n) })))
      const deliveries = await soon('each waiter gets one', Promise.all(waits))
      assert.equal(new Set(deliveries.map((delivery) => delivery?.payload)).size, 12)
      for (const delivery of deliveries) assert.equal(await delivery?.ack(), 'settled')
      assert.equal(getEventListeners(signal, 'abort').length, 0)
      await until('the subscription is given up', () => shared.subscriptions() === 0)
    }),

    scenario('N85', 'a thousand waits one after the other leave no listener and no subscription', async (bench) => {
      const shared = observed(bench.backend)
      const queue = bench.queue({ backend: shared.backend })
      const { signal } = controlled()
      const warnings = await warningsDuring(async () => {
        for (const _ of range(bench.features.exactHints ? 1_000 : 100)) await queue.receive({ signal, timeoutMs: 0 })
        await queue.receive({ signal, timeoutMs: 10 })
      })
      assert.deepEqual(warnings, [])
      assert.equal(getEventListeners(signal, 'abort').length, 0)
      assert.equal(shared.subscriptions(), 0)
    }),

    scenario('N85', 'sources, outcomes and receives of ten consumers share a listener', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { id: 'a', delayMs: 60_000 })
      const { signal, abort } = controlled()
      const warnings = await warningsDuring(async () => {
        const waits = range(10).flatMap(() => [
          assert.rejects(queue.receive({ signal }), { name: 'AbortError' }),
          assert.rejects(queue.outcome('a', { signal }), { name: 'AbortError' }),
          assert.rejects(iterated(queue, signal), { name: 'AbortError' }),
        ])
        await pass(30)
        assert.ok(getEventListeners(signal, 'abort').length <= 1, 'a listener for each waiter')
        abort()
        await soon('all waits end', Promise.all(waits))
      })
      assert.deepEqual(warnings, [])
      assert.equal(getEventListeners(signal, 'abort').length, 0)
    }),

    scenario('M12', 'a batch that does not fill up comes with what there is when its time is over', async (bench) => {
      const queue = await filled(bench, 2)
      const clock = stopwatch()
      const iterator = pipe(queue.source(), batch({ size: 5, withinMs: 150 }))[Symbol.asyncIterator]()
      const { value } = await soon('a batch', iterator.next())
      const tookMs = clock()
      assert.deepEqual(
        value?.map(({ payload }) => payload),
        ['0', '1'],
      )
      assert.ok(tookMs >= 100 && tookMs <= 150 + SLACK_MS, `after ${tookMs} ms`)
      for (const delivery of value ?? []) assert.equal(await delivery.ack(), 'settled')
      await soon('the iterator ends', Promise.resolve(iterator.return?.()))
      await assertDepth(queue, { ready: 0, claimed: 0, ackedTotal: 2 })
    }),

    scenario(
      'X5',
      'every waiter gets one when as many messages come as wait, in one batch or one by one',
      async (bench) => {
        const queue = bench.queue()
        const peer = await bench.peer(queue)
        const waits = range(10).map((n) => next(n % 2 ? queue : peer))
        await pass(20)
        await peer.enqueueAll(range(5).map((n) => ({ payload: `batch ${n}` })))
        for (const n of range(5)) await queue.enqueue(`single ${n}`)
        const deliveries = await soon('each gets one', Promise.all(waits))
        assert.equal(new Set(deliveries.map(({ payload }) => payload)).size, 10)
        assert.ok(deliveries.every(({ deliveryCount }) => deliveryCount === 1))
      },
    ),
  ],
}

/** A handler that does not end before it is let go. */
interface Hold {
  (): Promise<void>
  readonly stop: AbortSignal
}

/** Whichever way the queue is consumed, the second of two messages is not claimed while the first is worked on. */
async function secondStaysFree(
  bench: Bench,
  consume: (queue: Queue<string>, hold: Hold) => () => Promise<unknown>,
): Promise<void> {
  const queue = await filled(bench, 2)
  const peer = await bench.peer(queue)
  const go = gate()
  const started = gate()
  const { signal, abort } = controlled()
  const hold = Object.assign(
    () => {
      started.open()
      return go.opened
    },
    { stop: signal },
  )
  const finish = consume(queue, hold)
  await soon('the handler starts', started.opened)
  await throughout(50, async () => (await peer.stats()).claimed === 1, 'one alone is claimed')
  const second = await nextNow(peer)
  assert.deepEqual([second.payload, second.attempt, second.deliveryCount], ['1', 1, 1])
  await second.ack()
  go.open()
  await until('the first is acked', async () => (await peer.stats()).ackedTotal === 2)
  abort()
  await soon('the consumer ends', finish())
}

async function filled(
  bench: Bench,
  count: number,
  options: Parameters<Bench['queue']>[0] = {},
): Promise<Queue<string>> {
  const queue = bench.queue<string>(options as object)
  await queue.enqueueAll(range(count).map((n) => ({ payload: String(n) })))
  return queue
}

async function iterated(queue: Queue<string>, signal: AbortSignal): Promise<void> {
  for await (const _ of queue.source({ signal })) assert.fail('nothing is there')
}

function controlled(): { readonly signal: AbortSignal; abort(): void } {
  const controller = new AbortController()
  return { signal: controller.signal, abort: () => controller.abort() }
}

function counter() {
  let now = 0
  let most = 0
  return {
    enter: () => {
      now += 1
      most = Math.max(most, now)
    },
    leave: () => {
      now -= 1
    },
    get most() {
      return most
    },
  }
}

/** Asks the backend again and again how many are claimed, until stopped; then says the most that it saw. */
async function watchClaimed<T>(bench: Bench, queue: Queue<T>): Promise<{ stop(): Promise<number> }> {
  const peer = await bench.peer(queue)
  let most = 0
  let stopped = false
  const watching = (async () => {
    while (!stopped) {
      most = Math.max(most, (await peer.stats()).claimed)
      await new Promise((resolve) => setImmediate(resolve))
    }
    return most
  })()
  return {
    stop: () => {
      stopped = true
      return watching
    },
  }
}

/** The same backend, with an eye on who is subscribed to its hints. */
function observed(backend: Backend) {
  let now = 0
  let most = 0
  const open = (queue: string, owner: BackendOwner) => {
    const driver = backend.open(queue, owner)
    const arrivals = () =>
      new Observable<never>((observer) => {
        now += 1
        most = Math.max(most, now)
        const subscription = (driver.arrivals() as Observable<never>).subscribe(observer)
        return () => {
          now -= 1
          subscription.unsubscribe()
        }
      })
    return { ...driver, arrivals }
  }
  return {
    backend: { ...backend, open },
    subscriptions: () => now,
    mostSubscriptions: () => most,
  }
}

/** The names of the warnings that this process raises meanwhile. */
async function warningsDuring(work: () => Promise<void>): Promise<string[]> {
  const names: string[] = []
  const note = ({ name }: Error) => names.push(name)
  process.on('warning', note)
  try {
    await work()
    // Warnings are raised in a turn of their own.
    await pass(5)
    return names
  } finally {
    process.off('warning', note)
  }
}
