import assert from 'node:assert/strict'
import { LimitError, QueueFullError } from '../../errors.js'
import type { Queue, QueueOptions } from '../../queue.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, bury, nextNow, payloads } from './steps.js'
import { all, callsOf, pass, range } from './wait.js'

/** Bounds hold on every backend, and are charged and refunded exactly. */
export const limits: Concern = {
  name: 'limits',
  scenarios: [
    scenario('M1', 'a full queue that rejects keeps what it has and refuses what comes', async (bench) => {
      const queue = await full(bench, { maxLength: 3 }, ['a', 'b', 'c'])
      await assert.rejects(queue.enqueue('d'), (error) => isFull(error, 'maxLength', 3))
      await assertDepth(queue, { ready: 3, enqueuedTotal: 3, droppedTotal: 0 })
      assert.deepEqual(await payloads(queue), ['a', 'b', 'c'])
    }),

    scenario('M1', 'a batch that does not fit as a whole is refused as a whole', async (bench) => {
      const queue = await full(bench, { maxLength: 3 }, ['a', 'b'])
      const batch = [{ payload: 'c', id: 'c' }, { payload: 'd' }]
      await assert.rejects(queue.enqueueAll(batch), (error) => isFull(error, 'maxLength', 3))
      await assertDepth(queue, { ready: 2, enqueuedTotal: 2 })
      assert.deepEqual(await queue.enqueue('c', { id: 'c' }), { id: 'c', status: 'enqueued' })
    }),

    scenario('M1', 'what is ready, delayed or claimed takes room, and what is dead does not', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 3 } })
      await bury(queue, ['x'])
      await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }, { payload: 'c', delayMs: 60_000 }])
      await nextNow(queue)
      await assertDepth(queue, { ready: 1, delayed: 1, claimed: 1, dead: 1 })
      await assert.rejects(queue.enqueue('d'), QueueFullError)
    }),

    ...(['ack', 'deadLetter', 'forward', 'cancel', 'purge', 'take'] as const).map((way) =>
      scenario('M1', `a message that goes by ${way} makes room for one more, and for no two`, async (bench) => {
        const queue = await full(bench, { maxLength: 2, maxBytes: 100 }, ['x'.repeat(40), 'y'.repeat(40)])
        await goes(bench, queue, way)
        await queue.enqueue('z'.repeat(40))
        await assert.rejects(queue.enqueue('too much'), QueueFullError)
        await assertDepth(queue, { ready: 2 })
      }),
    ),

    scenario('M1', 'a duplicate is one also where the queue is full, and costs nothing', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 2 } })
      await queue.enqueueAll(['a', 'b'].map((id) => ({ id, payload: id })))
      assert.deepEqual(await queue.enqueue('a', { id: 'a' }), { id: 'a', status: 'duplicate' })
      const batch = ['b', 'a', 'b'].map((id) => ({ id, payload: id }))
      const statuses = (await queue.enqueueAll(batch)).map(({ status }) => status)
      assert.deepEqual(statuses, ['duplicate', 'duplicate', 'duplicate'])
      await assertDepth(queue, { ready: 2, enqueuedTotal: 2 })
    }),

    scenario('M1', 'a requeue, a release and a lapse need no room: the message never left', async (bench) => {
      const queue = await full(bench, { maxLength: 2 }, ['a', 'b'])
      assert.equal(await (await nextNow(queue)).requeue({ delayMs: 1 }), 'settled')
      assert.equal(await (await nextNow(queue)).release(), 'settled')
      await assert.rejects(queue.enqueue('c'), QueueFullError)
    }),

    scenario('M2', 'a full queue that drops keeps the newest, and counts what it dropped', async (bench) => {
      const queue = await full(bench, { maxLength: 3, whenFull: 'dropOldest' }, ['a', 'b', 'c'])
      await queue.enqueue('d')
      await queue.enqueueAll([{ payload: 'e' }, { payload: 'f' }])
      await assertDepth(queue, { ready: 3, droppedTotal: 3, enqueuedTotal: 6 })
      assert.deepEqual(await payloads(queue), ['d', 'e', 'f'])
    }),

    scenario(
      'M2',
      'of several that come at once into a full queue each drops one, and none is counted twice',
      async (bench) => {
        const queue = await full(bench, { maxLength: 3, whenFull: 'dropOldest' }, ['a', 'b', 'c'])
        await Promise.all(range(8).map((n) => queue.enqueue(String(n))))
        await assertDepth(queue, { ready: 3, droppedTotal: 8, enqueuedTotal: 11 })
        assert.deepEqual(await payloads(queue), ['5', '6', '7'])
      },
    ),

    scenario('M2', 'the oldest is dropped whatever its priority', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 2, whenFull: 'dropOldest' } })
      await queue.enqueue('slow and old', { priority: 9 })
      await queue.enqueue('urgent', { priority: 0 })
      await queue.enqueue('newest', { priority: 5 })
      assert.deepEqual(await payloads(queue), ['urgent', 'newest'])
    }),

    scenario('M2', 'what is claimed or delayed is not dropped, even where nothing else is there', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 2, whenFull: 'dropOldest' } })
      await queue.enqueueAll([{ payload: 'claimed' }, { payload: 'delayed', delayMs: 60_000 }])
      const held = await nextNow(queue)
      await assert.rejects(queue.enqueue('c'), (error) => isFull(error, 'maxLength', 2))
      assert.equal(await held.ack(), 'settled')
      await queue.enqueue('c')
      await assertDepth(queue, { ready: 1, delayed: 1, droppedTotal: 0 })
    }),

    scenario('M2', 'a batch larger than the queue is refused, and drops nothing', async (bench) => {
      const queue = await full(bench, { maxLength: 2, whenFull: 'dropOldest' }, ['a', 'b'])
      await assert.rejects(queue.enqueueAll(range(3).map((n) => ({ payload: String(n) }))), QueueFullError)
      await assertDepth(queue, { ready: 2, droppedTotal: 0 })
      assert.deepEqual(await payloads(queue), ['a', 'b'])
    }),

    scenario('M2', 'as many as needed are dropped for one large message', async (bench) => {
      const queue = await full(
        bench,
        { maxBytes: 100, whenFull: 'dropOldest' },
        range(4).map(() => 'x'.repeat(20)),
      )
      await queue.enqueue('y'.repeat(50))
      await assertDepth(queue, { ready: 3, droppedTotal: 2 })
    }),

    scenario('M2', 'the id of a dropped message is free again', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 1, whenFull: 'dropOldest' } })
      await queue.enqueue('first', { id: 'a' })
      await queue.enqueue('other')
      assert.equal((await queue.enqueue('second', { id: 'a' })).status, 'enqueued')
      assert.deepEqual(await payloads(queue), ['second'])
    }),

    scenario('M5', 'a full queue of messages whose time is over takes a new one', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 3 }, ttlMs: 1_000 })
      await queue.enqueueAll(['a', 'b', 'c'].map((payload) => ({ payload })))
      await assert.rejects(queue.enqueue('too early'), QueueFullError)
      // Nobody looks at the queue meanwhile: the enqueue itself has to.
      await pass(1_100)
      await queue.enqueue('d', { ttlMs: 60_000 })
      assert.deepEqual(await payloads(queue), ['d'])
      await assertDepth(queue, { expiredTotal: 3, enqueuedTotal: 4 })
    }),

    scenario(
      'M9',
      'a claim that is purged gives its room back, and its late ack does not do so again',
      async (bench) => {
        const queue = await full(bench, { maxLength: 1, maxBytes: 50 }, ['x'.repeat(40)])
        const held = await nextNow(queue)
        await queue.purge({ state: 'claimed' })
        await queue.enqueue('y'.repeat(40))
        assert.equal(await held.ack(), 'stale')
        await assert.rejects(queue.enqueue('z'), QueueFullError)
      },
    ),

    scenario('X21', 'bytes are charged for payloads and headers, and given back to the last one', async (bench) => {
      const queue = bench.queue({ limits: { maxBytes: 200 } })
      const message = () => ({ payload: 'x'.repeat(90), headers: { h: 'y'.repeat(10) } })
      for (const n of range(40)) {
        await queue.enqueue(message().payload, { headers: message().headers, delayMs: n % 3 ? 0 : -1 })
        await assert.rejects(queue.enqueue('x'.repeat(150)), (error) => isFull(error, 'maxBytes', 200))
        const delivery = await nextNow(queue)
        if (n % 4 === 0) await delivery.requeue()
        else await delivery.release()
        await (await nextNow(queue)).ack()
      }
      await queue.enqueue('x'.repeat(190))
      await assertDepth(queue, { ready: 1, ackedTotal: 40 })
    }),

    scenario('X21', 'a header counts', async (bench) => {
      const queue = bench.queue({ limits: { maxBytes: 100 } })
      await assert.rejects(queue.enqueue('a', { headers: { big: 'x'.repeat(100) } }), QueueFullError)
      await queue.enqueue('a', { headers: { small: 'x' } })
    }),

    scenario('X21', 'a payload above the limit is refused, whole batches with it', async (bench) => {
      const queue = bench.queue({ limits: { maxPayloadBytes: 20 } })
      await assert.rejects(queue.enqueue('x'.repeat(19)), (error) => isTooLarge(error, 20, 21))
      await assert.rejects(queue.enqueueAll([{ payload: 'a' }, { payload: 'x'.repeat(30) }]), LimitError)
      assert.equal(callsOf(bench.backend, 'enqueue'), 0)
      await queue.enqueue('x'.repeat(18))
      await assertDepth(queue, { ready: 1, enqueuedTotal: 1 })
    }),

    scenario('X21', 'the limit counts bytes, not characters', async (bench) => {
      const queue = bench.queue({ limits: { maxPayloadBytes: 20 } })
      await assert.rejects(queue.enqueue('🐟'.repeat(5)), LimitError)
    }),

    scenario('X21', 'without a limit of its own a queue takes payloads up to 1 MiB', async (bench) => {
      const queue = bench.queue()
      await assert.rejects(queue.enqueue('x'.repeat(1_048_575)), (error) => isTooLarge(error, 1_048_576, 1_048_577))
      await queue.enqueue('x'.repeat(1_048_574))
      assert.equal((await nextNow(queue)).payload.length, 1_048_574)
    }),

    scenario('X22', 'a dead letter comes back only where there is room, and is kept otherwise', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 2 } })
      await bury(queue, ['x', 'y'])
      await queue.enqueue('a')
      assert.equal(await queue.deadLetters.requeue('x'), true)
      await assert.rejects(queue.deadLetters.requeue('y'), QueueFullError)
      await assertDepth(queue, { ready: 2, dead: 1 })
      assert.deepEqual(
        (await all(queue.deadLetters)).map(({ id }) => id),
        ['y'],
      )
    }),

    scenario('X22', 'of many dead letters none comes back where there is not room for all', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 80 } })
      await bury(
        queue,
        range(70).map((n) => `dead ${n}`),
      )
      await queue.enqueueAll(range(20).map((n) => ({ payload: `ready ${n}` })))
      await assert.rejects(queue.deadLetters.requeueAll(), QueueFullError)
      await assertDepth(queue, { ready: 20, dead: 70 })
    }),

    scenario('X22', 'a dead letter that comes back drops the oldest, where that is how room is made', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 2, whenFull: 'dropOldest' } })
      await bury(queue, ['x'])
      await queue.enqueue('a')
      await queue.enqueue('b')
      assert.equal(await queue.deadLetters.requeue('x'), true)
      await assertDepth(queue, { ready: 2, dead: 0, droppedTotal: 1 })
      assert.deepEqual(await payloads(queue), ['b', 'x'])
    }),

    scenario('X22', 'of more dead letters than there is room for at all none comes back', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 40, whenFull: 'dropOldest' } })
      const ids = range(60).map((n) => `dead ${n}`)
      await bury(queue, ids.slice(0, 30))
      await bury(queue, ids.slice(30))
      await assert.rejects(queue.deadLetters.requeueAll(), QueueFullError)
      await assertDepth(queue, { ready: 0, dead: 60, droppedTotal: 0 })
    }),

    scenario('M2', 'what is there already is a duplicate, also where it is what would be dropped', async (bench) => {
      const queue = await full(bench, { maxLength: 2, whenFull: 'dropOldest' }, ['a', 'b'])
      assert.equal((await queue.enqueue('again', { id: '0' })).status, 'duplicate')
      const statuses = (await queue.enqueueAll(['1', 'new'].map((id) => ({ payload: id, id })))).map(
        ({ status }) => status,
      )
      assert.deepEqual(statuses, ['duplicate', 'enqueued'])
      await assertDepth(queue, { ready: 2, droppedTotal: 1 })
      assert.deepEqual(await payloads(queue), ['b', 'new'])
    }),

    scenario(
      'M2',
      'what is dropped for one message is free for the next, also where both come at once',
      async (bench) => {
        const queue = await full(bench, { maxLength: 3, whenFull: 'dropOldest' }, ['a', 'b', 'c'])
        // While the first is on its way the others may be put together.
        const enqueued = await Promise.all([
          queue.enqueue('first'),
          queue.enqueue('second'),
          queue.enqueue('b again', { id: '1' }),
        ])
        assert.deepEqual(
          enqueued.map(({ status }) => status),
          ['enqueued', 'enqueued', 'enqueued'],
        )
        await assertDepth(queue, { ready: 3, droppedTotal: 3 })
        assert.deepEqual(await payloads(queue), ['first', 'second', 'b again'])
      },
    ),

    scenario('X22', 'many producers at a bound fill the queue exactly', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 10 } })
      await queue.stats()
      const peer = await bench.peer(queue)
      const results = await Promise.allSettled(range(40).map((n) => (n % 2 ? queue : peer).enqueue(String(n))))
      assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 10)
      await assertDepth(queue, { ready: 10, enqueuedTotal: 10 })
    }),
  ],
}

type Limits = NonNullable<QueueOptions<string>['limits']>

async function full(bench: Bench, bounds: Limits, contents: readonly string[]) {
  const queue = bench.queue({ limits: bounds })
  await queue.enqueueAll(contents.map((payload, n) => ({ payload, id: String(n) })))
  return queue
}

type Way = 'ack' | 'deadLetter' | 'forward' | 'cancel' | 'purge' | 'take'

/** The first message leaves. */
async function goes(bench: Bench, queue: Queue<string>, way: Way): Promise<void> {
  const delivery = way === 'cancel' || way === 'take' ? undefined : await nextNow(queue)
  if (way === 'ack') await delivery?.ack()
  else if (way === 'deadLetter') await delivery?.deadLetter('no')
  else if (way === 'forward') await delivery?.forward(bench.queue(), 'moved')
  else if (way === 'purge') await queue.purge({ state: 'claimed' })
  else if (way === 'cancel') await queue.cancel('0')
  else await queue.tryTake()
}

function isFull(error: unknown, limit: string, maximum: number): boolean {
  assert.ok(error instanceof QueueFullError, `${error}`)
  assert.deepEqual([error.limit, error.maximum], [limit, maximum])
  return true
}

function isTooLarge(error: unknown, maximum: number, value: number): boolean {
  assert.ok(error instanceof LimitError, `${error}`)
  assert.deepEqual([error.limit, error.maximum, error.value], ['maxPayloadBytes', maximum, value])
  return true
}
