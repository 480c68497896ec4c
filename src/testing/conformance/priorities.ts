import assert from 'node:assert/strict'
import { InvalidOptionError } from '../../errors.js'
import type { Queue } from '../../queue.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, drained, next, nextNow, payloads, stopwatch } from './steps.js'
import { pass, range, seeded, shortLeaseMs } from './wait.js'

/** Lower numbers first, arrival within one, and waiting counts where ageing says so. */
export const priorities: Concern = {
  name: 'priorities',
  scenarios: [
    scenario('N56', 'lower priorities come first, and within one the earlier', async (bench) => {
      const queue = bench.queue()
      const entries = range(60).map((n) => ({ payload: `${(n * 7) % 5}-${String(n).padStart(2, '0')}`, n }))
      for (const { payload, n } of entries) await queue.enqueue(payload, { priority: (n * 7) % 5 })
      assert.deepEqual(await payloads(queue), entries.map(({ payload }) => payload).sort())
    }),

    scenario('N56', 'a batch is ordered like single messages', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('0 old')
      await queue.enqueueAll([2, 0, 1, 0, 2].map((priority, n) => ({ payload: `${priority} ${n}`, priority })))
      await queue.enqueue('1 new', { priority: 1 })
      assert.deepEqual(await payloads(queue), ['0 old', '0 1', '0 3', '1 2', '1 new', '2 0', '2 4'])
    }),

    scenario('N56', 'identical payloads stay separate messages', async (bench) => {
      const queue = bench.queue()
      const stored = [
        await queue.enqueue('same'),
        ...(await queue.enqueueAll([{ payload: 'same' }, { payload: 'same' }])),
      ]
      const ids = (await drained(queue)).map(({ id }) => id)
      assert.deepEqual(
        ids,
        stored.map(({ id }) => id),
      )
      assert.equal(new Set(ids).size, 3)
    }),

    scenario('N56', 'the whole range of priorities is in order, as numbers and not as text', async (bench) => {
      const queue = bench.queue<number>()
      for (const priority of [65_535, 10, 9, 256, 255, 0, 1_000, 65_534]) await queue.enqueue(priority, { priority })
      const deliveries = await drained(queue)
      assert.deepEqual(
        deliveries.map(({ payload }) => payload),
        [0, 9, 10, 255, 256, 1_000, 65_534, 65_535],
      )
      assert.ok(deliveries.every(({ payload, priority }) => payload === priority))
    }),

    scenario(
      'N56',
      'a more urgent message that comes later overtakes those that wait, not the one that is claimed',
      async (bench) => {
        const queue = bench.queue()
        await queue.enqueueAll([
          { payload: 'a', priority: 5 },
          { payload: 'b', priority: 5 },
        ])
        const held = await nextNow(queue)
        await queue.enqueue('urgent')
        assert.deepEqual(await payloads(queue), ['urgent', 'b'])
        assert.equal(await held.ack(), 'settled')
      },
    ),

    ...[65_536, -1, Number.NaN, 1.5, Number.POSITIVE_INFINITY, '1' as unknown as number].map((priority) =>
      scenario(
        'N57',
        `priority ${JSON.stringify(priority) ?? priority} (${typeof priority} ${priority}) is refused before any I/O`,
        async (bench) => {
          const queue = bench.queue()
          const refusal = (error: unknown) => {
            assert.ok(error instanceof InvalidOptionError)
            assert.match(error.field, /priority/)
            return Object.is(error.value, priority)
          }
          await assert.rejects(queue.enqueue('a', { priority }), refusal)
          await assert.rejects(queue.enqueueAll([{ payload: 'a' }, { payload: 'b', priority }]), refusal)
          assert.deepEqual(bench.backend.calls, [])
          await assertDepth(queue, { enqueuedTotal: 0 })
        },
      ),
    ),

    scenario('N58', 'a requeued message keeps its priority', async (bench) => {
      const queue = await withOneOfEach(bench)
      const first = await nextNow(queue)
      assert.equal(await first.requeue({ delayMs: 20 }), 'settled')
      await pass(60)
      await assertMiddleLast(queue)
    }),

    scenario('N58', 'a message whose claim lapsed keeps its priority', async (bench) => {
      const queue = await withOneOfEach(bench)
      await crashed(bench, queue)
      await assertMiddleLast(queue)
    }),

    scenario('N58', 'a dead letter that is requeued keeps its priority', async (bench) => {
      const queue = await withOneOfEach(bench)
      const first = await nextNow(queue)
      await first.deadLetter('no')
      assert.equal(await queue.deadLetters.requeue(first.id), true)
      await assertMiddleLast(queue)
    }),

    scenario('N58', 'priorities outlive the queue object', async (bench) => {
      const queue = await withOneOfEach(bench)
      const peer = await bench.peer(queue)
      await queue.close()
      await assertMiddleLast(peer)
    }),

    scenario(
      'N59',
      'with ageing a message is overtaken only by those that come soon enough after it',
      async (bench) => {
        const queue = bench.queue({ ageing: { stepMs: 100 } })
        await queue.enqueueAll([{ payload: 'low', priority: 3 }, { payload: 'high at once' }])
        await pass(350)
        await queue.enqueue('high, too late')
        assert.deepEqual(await payloads(queue), ['high at once', 'low', 'high, too late'])
      },
    ),

    scenario('N59', 'under a steady load of urgent messages a low one is served within its bound', (bench) =>
      steadyLoad(bench, 3, 40),
    ),

    scenario('N59', 'with ageing the order is that of arrival plus priority steps, for any mixture', async (bench) => {
      const stepMs = 10
      const queue = bench.queue<number>({ ageing: { stepMs } })
      const random = seeded(59)
      for (const n of range(60)) {
        await queue.enqueue(n, { priority: Math.floor(random() * 8) })
        await pass(Math.floor(random() * 4))
      }
      const keys = (await drained(queue)).map(({ enqueuedAt, priority }) => enqueuedAt + priority * stepMs)
      keys.reduce((last, key) => {
        assert.ok(key >= last - 2, `out of order: ${last} before ${key}`)
        return key
      })
    }),

    scenario(
      'N59',
      'a delayed message ages from when it was due, however late it is promoted',
      async (bench) => {
        const queue = bench.queue({ ageing: { stepMs: 50 } })
        await queue.enqueue('low', { priority: 2, delayMs: 50 })
        // Nobody claims or sweeps meanwhile, so it has not been promoted when the other one is stored.
        await pass(250)
        await queue.enqueue('high')
        assert.deepEqual(await payloads(queue), ['low', 'high'])
      },
      ({ serverTime }) => serverTime,
    ),

    scenario('N59', 'a message that is given back keeps its age', async (bench) => {
      const queue = bench.queue({ ageing: { stepMs: 50 } })
      await queue.enqueue('low', { priority: 2 })
      await pass(150)
      const held = await nextNow(queue)
      await queue.enqueue('high')
      assert.equal(await held.requeue(), 'settled')
      assert.deepEqual(await payloads(queue), ['low', 'high'])
    }),

    scenario('N59', 'ageing that is named later puts the messages that are here in their places', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll([{ payload: 'old' }, { payload: 'old5', priority: 5 }])
      const peer = await bench.peer(queue, { ageing: { stepMs: 60_000 } })
      await peer.enqueue('new9', { priority: 9 })
      assert.deepEqual(await payloads(peer), ['old', 'old5', 'new9'])
    }),

    scenario('N60', 'ageing changes nothing within one priority', async (bench) => {
      const queue = bench.queue<number>({ ageing: { stepMs: 1 } })
      for (const n of range(30)) await queue.enqueue(n, { priority: 4 })
      const held = await nextNow(queue)
      await held.release()
      assert.deepEqual(await payloads(queue), range(30))
    }),

    scenario('N60', 'priorities above the cap never rise, and stay strict among themselves', async (bench) => {
      const queue = bench.queue({ ageing: { stepMs: 10, cap: 3 } })
      await queue.enqueueAll([
        { payload: '5 old', priority: 5 },
        { payload: '4 old', priority: 4 },
      ])
      await pass(200)
      await queue.enqueueAll([4, 5, 3].map((priority) => ({ payload: `${priority} new`, priority })))
      assert.deepEqual(await payloads(queue), ['3 new', '4 old', '4 new', '5 old', '5 new'])
    }),

    scenario('N60', 'priorities up to the cap age among themselves', async (bench) => {
      const queue = bench.queue({ ageing: { stepMs: 20, cap: 3 } })
      await queue.enqueue('3 old', { priority: 3 })
      await pass(150)
      await queue.enqueue('0 new')
      assert.deepEqual(await payloads(queue), ['3 old', '0 new'])
    }),

    scenario('X4', 'without ageing no wait is long enough to overtake a more urgent message', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('low', { priority: 1 })
      await pass(150)
      await queue.enqueue('high')
      assert.deepEqual(await payloads(queue), ['high', 'low'])
    }),
  ],
}

/** 'first' (3) and 'last' (7) are queued. */
async function withOneOfEach(bench: Bench) {
  const queue = bench.queue({ leaseMs: shortLeaseMs(bench.features, 100) })
  await queue.enqueueAll([
    { payload: 'last', priority: 7 },
    { payload: 'first', priority: 3 },
  ])
  return queue
}

/** 'first' still goes before a new message of a priority in between, and that before 'last'. */
async function assertMiddleLast(queue: Queue<string>): Promise<void> {
  await queue.enqueue('middle', { priority: 5 })
  const deliveries = await drained(queue)
  assert.deepEqual(
    deliveries.map(({ payload, priority }) => [payload, priority]),
    [
      ['first', 3],
      ['middle', 5],
      ['last', 7],
    ],
  )
}

/** A consumer claims the next message, and is never heard of again. */
async function crashed(bench: Bench, queue: Queue<string>): Promise<void> {
  const fault = bench.backend.inject({ verb: 'renew', kind: 'drop-request', times: Number.POSITIVE_INFINITY })
  const { id } = await nextNow(queue)
  // Whoever looks for it does renew what it finds meanwhile.
  const again = await eventuallyClaimed(await bench.peer(queue), id)
  assert.equal(again.attempt, 2)
  assert.equal(await again.release(), 'settled')
  fault.remove()
}

/** Claims what is there until it is this message; gives the others back. */
async function eventuallyClaimed(queue: Queue<string>, id: string) {
  const others: Awaited<ReturnType<typeof nextNow>>[] = []
  for (;;) {
    const delivery = await next(queue)
    if (delivery.id === id) {
      for (const other of others) assert.equal(await other.release(), 'settled')
      return delivery
    }
    others.push(delivery)
  }
}

async function steadyLoad(bench: Bench, priority: number, stepMs: number): Promise<void> {
  const queue = bench.queue({ ageing: { stepMs } })
  await queue.enqueueAll(range(5).map((n) => ({ payload: `high ${n}` })))
  await queue.enqueue('low', { priority })
  const before: number[] = []
  const clock = stopwatch()
  for (;;) {
    // Two come for each that goes, so the urgent ones never run out.
    await queue.enqueueAll([{ payload: 'high' }, { payload: 'high' }])
    const delivery = await next(queue)
    await delivery.ack()
    if (delivery.payload === 'low') {
      const bound = delivery.enqueuedAt + priority * stepMs
      assert.deepEqual(
        before.filter((enqueuedAt) => enqueuedAt > bound + 2),
        [],
      )
      return
    }
    before.push(delivery.enqueuedAt)
    assert.ok(clock() < 8_000, 'the low one starves')
    await pass(1)
  }
}
