import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import type { Queue } from '../../queue.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, bury, drained, enqueueMany, nextNow, payloads } from './steps.js'
import { all, callsOf, range, soon } from './wait.js'

/** Listings show everything once, in order, page by page, and touch nothing. */
export const listing: Concern = {
  name: 'listing',
  scenarios: [
    scenario(
      'X29',
      'a peek shows all that is ready, in the order in which it will come, and takes nothing',
      async (bench) => {
        const queue = await filled(bench, 250)
        const shown = (await all(queue.peek({ state: 'ready' }))).map(({ payload }) => payload)
        await assertDepth(queue, { ready: 250, claimed: 0 })
        const deliveries = await drained(queue)
        assert.deepEqual(
          shown,
          deliveries.map(({ payload }) => payload),
        )
        assert.ok(deliveries.every(({ attempt, deliveryCount }) => attempt === 1 && deliveryCount === 1))
      },
    ),

    scenario('X29', 'a listing reads pages, not messages', async (bench) => {
      const queue = await filled(bench, 250)
      assert.equal((await all(queue.peek({ state: 'ready' }))).length, 250)
      assert.ok(callsOf(bench.backend, 'list') <= 4, `${callsOf(bench.backend, 'list')} reads of 250 messages`)
    }),

    scenario('X29', 'a limit is kept, and reads no more than it needs', async (bench) => {
      const queue = await filled(bench, 250)
      assert.equal((await all(queue.peek({ limit: 120 }))).length, 120)
      const reads = callsOf(bench.backend, 'list')
      assert.equal((await all(queue.peek({ limit: 5 }))).length, 5)
      assert.equal(callsOf(bench.backend, 'list'), reads + 1)
      assert.equal((await all(queue.peek({ limit: 1_000 }))).length, 250)
    }),

    scenario('X29', 'a loop that is left reads no further', async (bench) => {
      const queue = await filled(bench, 250)
      for await (const { payload } of queue.peek()) if (payload === (await firstOf(queue))) break
      const reads = callsOf(bench.backend, 'list')
      assert.ok(reads <= 2, `${reads} reads for one message`)
    }),

    scenario('X29', 'a listing of all states shows each message once, with its state', async (bench) => {
      const queue = bench.queue({ consumer: 'worker 7' })
      await queue.enqueueAll(range(5).map((n) => ({ id: String(n), payload: String(n) })))
      await queue.enqueue('d', { id: 'd', delayMs: 60_000 })
      const held = await nextNow(queue)
      const shown = await all(queue.peek())
      assert.deepEqual(shown.map(({ id, state }) => `${id} ${state}`).sort(), [
        '0 claimed',
        '1 ready',
        '2 ready',
        '3 ready',
        '4 ready',
        'd delayed',
      ])
      const byId = new Map(shown.map((message) => [message.id, message]))
      const [claimed, delayed, ready] = [byId.get('0'), byId.get('d'), byId.get('1')]
      assert.equal(claimed?.consumer, 'worker 7')
      assert.ok(Math.abs((claimed.leaseExpiresAt ?? 0) - held.leaseExpiresAt) < 30_000)
      assert.equal(claimed.deliveryCount, 1)
      const dueInMs = (delayed?.dueAt ?? 0) - (delayed?.enqueuedAt ?? 0)
      assert.ok(Math.abs(dueInMs - 60_000) < 100, `due ${dueInMs} ms after it was enqueued`)
      assert.deepEqual([ready?.dueAt, ready?.leaseExpiresAt, ready?.consumer], [undefined, undefined, undefined])
      assert.ok(shown.every(({ enqueuedAt }) => Math.abs(enqueuedAt - Date.now()) < 60_000))
    }),

    scenario('X29', 'the delayed are all by when they are due', async (bench) => {
      const queue = bench.queue()
      for (const delayMs of [300_000, 100_000, 200_000]) await queue.enqueue(String(delayMs), { delayMs })
      const shown = await all(queue.peek({ state: 'delayed' }))
      assert.deepEqual(
        shown.map(({ payload }) => payload),
        ['100000', '200000', '300000'],
      )
    }),

    scenario('X29', 'what stays in a queue is all once though others come and go between the pages', async (bench) => {
      const queue = await filled(bench, 300)
      const peer = await bench.peer(queue)
      const stays = new Set((await all(peer.peek())).slice(150).map(({ id }) => id))
      const seen: string[] = []
      let n = 0
      for await (const { id } of queue.peek()) {
        seen.push(id)
        n += 1
        if (n <= 150 && n % 3 === 0) await (await nextNow(peer)).ack()
        if (n % 50 === 0) await peer.enqueue('new', { priority: 0 })
      }
      assert.equal(new Set(seen).size, seen.length, 'a message was all twice')
      const missed = [...stays].filter((id) => !seen.includes(id))
      assert.deepEqual(missed, [])
    }),

    scenario('X29', 'an empty queue lists nothing', async (bench) => {
      const queue = bench.queue()
      assert.deepEqual(await all(queue.peek()), [])
      assert.deepEqual(await all(queue.deadLetters), [])
    }),

    scenario(
      'X30',
      'all dead letters come back, however many pages they are, each with a fresh start',
      async (bench) => {
        const queue = await dead(bench, 250)
        assert.equal(await queue.deadLetters.requeueAll(), 250)
        await assertDepth(queue, { dead: 0, ready: 250 })
        const deliveries = await drained(queue)
        assert.deepEqual(
          deliveries.map(({ payload }) => payload),
          range(250).map(String),
        )
        assert.ok(deliveries.every(({ attempt, deliveryCount }) => attempt === 1 && deliveryCount === 1))
        assert.equal(await queue.deadLetters.requeueAll(), 0)
      },
    ),

    scenario('X30', 'a dead letter that comes back queues up behind what is there already', async (bench) => {
      const queue = bench.queue()
      await bury(queue, ['x', 'y'])
      await queue.enqueue('there already')
      await queue.deadLetters.requeueAll()
      await queue.enqueue('newer')
      assert.deepEqual(await payloads(queue), ['there already', 'x', 'y', 'newer'])
    }),

    scenario('X30', 'a filter decides which dead letters come back, and is shown each once', async (bench) => {
      const queue = await dead(bench, 230)
      const shown: string[] = []
      const count = await queue.deadLetters.requeueAll(({ id, reason }) => {
        assert.equal(reason, 'for good')
        shown.push(id)
        return Number(id) % 3 === 0
      })
      assert.equal(count, 77)
      assert.deepEqual(shown, range(230).map(String))
      await assertDepth(queue, { dead: 153, ready: 77 })
      const left = (await all(queue.deadLetters)).map(({ id }) => Number(id))
      assert.deepEqual(
        left,
        range(230).filter((n) => n % 3 !== 0),
      )
    }),

    scenario('X30', 'a filter decides which dead letters go for good, and frees their ids', async (bench) => {
      const queue = await dead(bench, 130)
      assert.equal(await queue.deadLetters.purgeAll(({ payload }) => payload?.endsWith('7') === true), 13)
      await assertDepth(queue, { dead: 117, purgedTotal: 13 })
      assert.equal((await queue.enqueue('again', { id: '7' })).status, 'enqueued')
      assert.equal((await queue.enqueue('again', { id: '8' })).status, 'duplicate')
      assert.equal(await queue.deadLetters.purgeAll(), 117)
      await assertDepth(queue, { dead: 0, ready: 1, purgedTotal: 130 })
    }),

    scenario('X30', 'a filter that throws ends the call, and touches nothing after it', async (bench) => {
      const queue = await dead(bench, 10)
      const error = new Error('filter')
      const failing = queue.deadLetters.purgeAll(() => {
        throw error
      })
      await assert.rejects(failing, (rejected) => rejected === error)
      await assertDepth(queue, { dead: 10 })
    }),

    scenario('X30', 'all dead letters means those that are there now, though they die again at once', async (bench) => {
      const queue = await dead(bench, 250)
      const peer = await bench.peer(queue)
      const page = bench.backend.inject({ verb: 'deadLetters', kind: 'hold-request', nth: 2 })
      const requeued = queue.deadLetters.requeueAll()
      await soon('the first page is requeued', page.reached)
      for (const delivery of await received(peer, 100)) await delivery.deadLetter('again')
      await assertDepth(peer, { ready: 0, dead: 250 })
      page.release()
      assert.equal(await soon('it ends', requeued), 250)
      await assertDepth(peer, { ready: 150, dead: 100 })
    }),

    scenario('X30', 'of two that requeue everything at once each message counts for one', async (bench) => {
      const queue = await dead(bench, 150)
      const peer = await bench.peer(queue)
      const [first, second] = await Promise.all([queue.deadLetters.requeueAll(), peer.deadLetters.requeueAll()])
      assert.equal(first + second, 150)
      await assertDepth(queue, { ready: 150, dead: 0 })
      assert.equal(new Set(await payloads(queue)).size, 150)
    }),
  ],
}

/** Messages of three priorities. */
async function filled(bench: Bench, count: number) {
  const queue = bench.queue()
  await enqueueMany(
    queue,
    bench.features,
    range(count).map((n) => ({ payload: String(n), priority: n % 3 })),
  )
  return queue
}

async function dead(bench: Bench, count: number) {
  const queue = bench.queue()
  const ids = range(count).map(String)
  const size = Math.min(bench.features.maxBatch, count)
  for (let from = 0; from < count; from += size) await bury(queue, ids.slice(from, from + size))
  return queue
}

async function firstOf(queue: Queue<string>): Promise<string | undefined> {
  const [first] = await all(queue.peek({ limit: 1 }))
  return first?.payload
}

async function received(queue: Queue<string>, count: number) {
  const deliveries: Delivery<string>[] = []
  for (const _ of range(count)) deliveries.push(await nextNow(queue))
  return deliveries
}
