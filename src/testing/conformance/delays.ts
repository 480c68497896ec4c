import assert from 'node:assert/strict'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import { run } from '../../sinks/run.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, drained, enqueueMany, next, nextNow, payloads, stopwatch, throughout } from './steps.js'
import { callsOf, EARLY_MS, pass, range, SLACK_MS, within } from './wait.js'

const DAY_MS = 86_400_000

/** A delay is kept from both sides, whoever waits and whatever else is there. */
export const delays: Concern = {
  name: 'delays',
  scenarios: [
    scenario('N47', 'a delayed message comes after its delay, soon, and on its first attempt', async (bench) => {
      const queue = bench.queue()
      const clock = stopwatch()
      await queue.enqueue('a', { delayMs: 250 })
      const early = await queue.tryReceive()
      assert.ok(early === undefined || clock() >= 250, 'it was there before its time')
      const delivery = early ?? (await next(queue))
      assertAbout(clock(), 250)
      assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
      await assertDepth(queue, { ready: 0, delayed: 0, claimed: 1 })
    }),

    scenario('N47', 'a delayed message is counted as delayed, and as ready when its time has come', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('later', { delayMs: DAY_MS })
      await queue.enqueue('soon', { delayMs: 300 })
      await assertDepth(queue, { ready: 0, delayed: 2 })
      await (await next(queue)).release()
      await assertDepth(queue, { ready: 1, delayed: 1, claimed: 0 })
    }),

    scenario('N48', 'the shorter of two delays comes first', async (bench) => {
      const queue = bench.queue()
      const clock = stopwatch()
      await queue.enqueue('long', { delayMs: 350 })
      await queue.enqueue('short', { delayMs: 100 })
      const first = await next(queue)
      const firstMs = clock()
      const second = await next(queue)
      assert.deepEqual([first.payload, second.payload], ['short', 'long'])
      assert.ok(firstMs >= 100 - EARLY_MS && clock() >= 350 - EARLY_MS, `too early: ${firstMs}, ${clock()} ms`)
    }),

    scenario('N48', 'a nearer delay brings the wait of a parked consumer forward', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('far', { delayMs: 20_000 })
      const wait = next(queue)
      await pass(50)
      const clock = stopwatch()
      await queue.enqueue('near', { delayMs: 100 })
      assert.equal((await wait).payload, 'near')
      assertAbout(clock(), 100)
    }),

    scenario('N48', 'messages that mature together keep the order in which they were enqueued', async (bench) => {
      const queue = bench.queue()
      const names = range(20).map(String)
      await queue.enqueueAll(names.map((payload) => ({ payload, delayMs: 100 })))
      await pass(150)
      assert.deepEqual(await payloads(queue), names)
    }),

    scenario(
      'N48',
      'a delayed message takes its place by when it was due, however late it is promoted',
      async (bench) => {
        const queue = bench.queue()
        await queue.enqueueAll([{ payload: 'delayed', delayMs: 100 }, { payload: 'before' }])
        // Nobody claims or sweeps meanwhile, so nothing has been promoted when the last one is stored.
        await pass(200)
        await queue.enqueue('after')
        assert.deepEqual(await payloads(queue), ['before', 'delayed', 'after'])
      },
      ({ serverTime }) => serverTime,
    ),

    scenario('N49', 'what is ready now is not held up by what is delayed, whatever its priority', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll(range(50).map((n) => ({ payload: `later ${n}`, delayMs: DAY_MS, priority: 0 })))
      await queue.enqueue('now', { priority: 9 })
      assert.equal((await nextNow(queue)).payload, 'now')
      assert.equal(await queue.tryReceive(), undefined)
    }),

    scenario('N50', 'a wait shorter than the delay ends in time and empty-handed', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a', { delayMs: 20_000 })
      const clock = stopwatch()
      assert.equal(await queue.receive({ timeoutMs: 100 }), undefined)
      assertAbout(clock(), 100)
      await assertDepth(queue, { ready: 0, delayed: 1, claimed: 0 })
    }),

    scenario('N50', 'a delay of zero or less is now, for an enqueue and for a requeue', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll([
        { payload: 'zero', delayMs: 0 },
        { payload: 'negative', delayMs: -60_000 },
        { payload: 'none' },
      ])
      const first = await nextNow(queue)
      assert.equal(await first.requeue({ delayMs: -5 }), 'settled')
      assert.deepEqual(await payloads(queue), ['zero', 'negative', 'none'])
    }),

    scenario('N51', 'a consumer parked on an empty queue gets a delayed message at its time', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      const wait = next(queue)
      await pass(50)
      const clock = stopwatch()
      await peer.enqueue('a', { delayMs: 200 })
      const delivery = await wait
      assertAbout(clock(), 200)
      assert.equal(delivery.attempt, 1)
    }),

    scenario('N51', 'a parked consumer gets a message that is requeued elsewhere with a delay', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueue('a')
      const first = await nextNow(peer)
      const wait = next(queue)
      await pass(30)
      const clock = stopwatch()
      assert.equal(await first.requeue({ delayMs: 150 }), 'settled')
      assert.equal((await wait).attempt, 2)
      assertAbout(clock(), 150)
    }),

    scenario('N53', 'thousands that mature at once reach five consumers once each, the first without delay', mature),

    scenario('N55', 'the wrong clock of a producer shifts no delay', (bench) => skewed(bench, 60_000), serverTime),
    scenario('N55', 'a producer whose clock is slow shifts no delay', (bench) => skewed(bench, -60_000), serverTime),
    scenario(
      'N55',
      'where delays lean on the clocks of clients, a slow one brings them forward and loses nothing',
      async (bench) => {
        const queue = bench.queue()
        await withClockOff(-60_000, () => queue.enqueue('a', { delayMs: 1_000 }))
        assert.equal((await next(queue)).payload, 'a')
      },
      ({ serverTime: can }) => !can,
    ),

    scenario(
      'X1',
      'a delay longer than a native timer can hold is kept, and costs nothing meanwhile',
      async (bench) => {
        const queue = bench.queue()
        await queue.enqueue('in a month', { delayMs: 31 * DAY_MS })
        const wait = queue.receive({ timeoutMs: 200 })
        await pass(50)
        const calls = bench.backend.calls.length
        assert.equal(await wait, undefined)
        assert.ok(bench.backend.calls.length - calls <= 2, 'a parked consumer kept the backend busy')
        await assertDepth(queue, { delayed: 1 })
      },
    ),

    scenario('X2', 'a wait that ends leaves the delayed message to the next one', async (bench) => {
      const queue = bench.queue()
      const clock = stopwatch()
      await queue.enqueue('a', { delayMs: 200 })
      const controller = new AbortController()
      const cancelled = queue.receive({ signal: controller.signal })
      const wait = next(queue)
      await pass(30)
      controller.abort()
      await assert.rejects(cancelled, { name: 'AbortError' })
      assert.equal((await wait).deliveryCount, 1)
      assertAbout(clock(), 200)
    }),

    scenario('X3', 'many delays close together do not make a parked consumer spin', async (bench) => {
      const queue = bench.queue()
      await enqueueMany(
        queue,
        bench.features,
        range(300).map((n) => ({ payload: String(n), delayMs: DAY_MS + n })),
      )
      const wait = queue.receive({ timeoutMs: 150 })
      const before = callsOf(bench.backend, 'claim')
      await throughout(
        100,
        () => callsOf(bench.backend, 'claim') - before <= 3,
        'a parked consumer claims now and then',
      )
      assert.equal(await wait, undefined)
    }),
  ],
}

function serverTime(features: Bench['features']): boolean {
  return features.serverTime
}

function assertAbout(actualMs: number, expectedMs: number): void {
  assert.ok(actualMs >= expectedMs - EARLY_MS, `after ${actualMs} ms instead of ${expectedMs}: too early`)
  assert.ok(actualMs <= expectedMs + SLACK_MS, `after ${actualMs} ms instead of ${expectedMs}: too late`)
}

async function mature(bench: Bench): Promise<void> {
  const queue = bench.queue<number>()
  const count = bench.features.maxBatch >= 1_000 ? 10_000 : 500
  const clock = stopwatch()
  const delayMs = 500
  await enqueueMany(
    queue,
    bench.features,
    range(count).map((payload) => ({ payload, delayMs: delayMs - clock() })),
  )
  const storedMs = clock()
  const seen = new Set<number>()
  const twice: number[] = []
  let firstMs: number | undefined
  const handler = (payload: number) => {
    firstMs ??= clock()
    if (seen.has(payload)) twice.push(payload)
    seen.add(payload)
  }
  const consumers = await Promise.all(range(5).map(() => bench.peer(queue)))
  const runs = consumers.map((peer) =>
    run(
      pipe(
        peer.source({ until: 'idle' }),
        mergeMap(({ payload }) => handler(payload), 50),
      ),
    ),
  )
  await within(25_000, 'all are handled', Promise.all(runs))
  assert.deepEqual(twice, [])
  assert.equal(seen.size, count)
  assert.ok((firstMs ?? 0) <= Math.max(delayMs, storedMs) + SLACK_MS, `the first came after ${firstMs} ms`)
  await assertDepth(queue, { ready: 0, delayed: 0, claimed: 0, dead: 0, ackedTotal: count })
}

async function skewed(bench: Bench, skewMs: number): Promise<void> {
  const queue = bench.queue()
  const clock = stopwatch()
  await withClockOff(skewMs, () => queue.enqueueAll([{ payload: 'delayed', delayMs: 200 }, { payload: 'now' }]))
  assert.equal((await nextNow(queue)).payload, 'now')
  assert.equal((await next(queue)).payload, 'delayed')
  assertAbout(clock(), 200)
  assert.equal((await drained(queue)).length, 0)
}

/** Runs `work` while the wall clock of this process is off by so much. */
async function withClockOff<T>(skewMs: number, work: () => Promise<T>): Promise<T> {
  const now = Date.now
  Date.now = () => now() + skewMs
  try {
    return await work()
  } finally {
    Date.now = now
  }
}
