/**
 * One message, many messages, many consumers: N1 to N4.
 */
import assert from 'node:assert/strict'
import type { Queue } from '../../queue.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { all, drainPayloads, idsIn, parked, range, receive, soon, statsAre } from './wait.js'

async function leavesNoTrace(bench: Bench): Promise<void> {
  const queue = bench.queue({ retention: { maxOutcomes: 0 } })
  await queue.enqueue('only', { id: 'once', key: 'k', headers: { h: 'v' } })
  const delivery = await receive(queue)
  assert.equal(delivery.payload, 'only')
  assert.equal(delivery.attempt, 1)
  assert.equal(delivery.deliveryCount, 1)
  assert.equal(await delivery.ack(), 'settled')
  assert.equal(delivery.settled, true)
  await statsAre(queue, { ackedTotal: 1, enqueuedTotal: 1 })
  for (const state of ['ready', 'delayed', 'claimed'] as const) assert.deepEqual(await idsIn(queue, state), [])
  assert.deepEqual(await all(queue.deadLetters), [])
  assert.deepEqual(await queue.outcome('once', { timeoutMs: 0 }), { state: 'unknown' })
  assert.deepEqual((await bench.leftovers(queue)) ?? [], [])
  assert.equal((await queue.enqueue('again', { id: 'once' })).status, 'enqueued')
}

async function carriesEverything(bench: Bench): Promise<void> {
  const queue = bench.queue<{ readonly sku: string }>()
  const before = Date.now()
  await queue.enqueue({ sku: 'A-1' }, { id: 'a', priority: 7, key: 'k', headers: { trace: 'x', empty: '' } })
  const delivery = await receive(queue)
  assert.deepEqual(delivery.payload, { sku: 'A-1' })
  assert.equal(delivery.id, 'a')
  assert.equal(delivery.priority, 7)
  assert.equal(delivery.key, 'k')
  assert.deepEqual({ ...delivery.headers }, { trace: 'x', empty: '' })
  assert.ok(Math.abs(delivery.enqueuedAt - before) < 60_000, `enqueuedAt ${delivery.enqueuedAt} is no epoch instant`)
  assert.ok(delivery.leaseExpiresAt > delivery.enqueuedAt)
  assert.equal(delivery.signal.aborted, false)
  assert.equal(delivery.settled, false)
  await statsAre(queue, { claimed: 1 })
  assert.equal(await delivery.ack({ ok: true }), 'settled')
  assert.deepEqual(await queue.outcome('a', { timeoutMs: 0 }), { state: 'done', result: { ok: true } })
}

/** Consumes until told to leave; remembers what it saw, in order. */
class Collector {
  readonly seen: number[] = []
  readonly source
  readonly done: Promise<void>

  constructor(queue: Queue<number>, seenByAll: (payload: number) => void) {
    this.source = queue.source()
    this.done = this.collect(seenByAll)
  }

  private async collect(seenByAll: (payload: number) => void): Promise<void> {
    for await (const delivery of this.source) {
      this.seen.push(delivery.payload)
      assert.equal(await delivery.ack(), 'settled')
      seenByAll(delivery.payload)
    }
  }
}

async function sharesOut(bench: Bench): Promise<void> {
  const queue = bench.queue<number>()
  const peer = await bench.peer(queue)
  const seen: number[] = []
  let finish = () => {}
  const finished = new Promise<void>((resolve) => {
    finish = resolve
  })
  const start = (index: number) =>
    new Collector(index % 2 === 0 ? queue : peer, (payload) => {
      seen.push(payload)
      if (seen.length === 100) finish()
    })
  const early = await parked(bench.backend, () => range(5).map(start))
  await queue.enqueueAll(range(50).map((payload) => ({ payload })))
  for (const payload of range(25, 50)) await queue.enqueue(payload)
  const collectors = [...early, ...range(5, 5).map(start)]
  await peer.enqueueAll(range(25, 75).map((payload) => ({ payload })))
  await soon('the last of 100 messages', finished)
  for (const { source, done } of collectors) {
    assert.deepEqual(await source.stop(), { released: 0, settledDuringGrace: 0, abandoned: 0 })
    await done
  }
  assert.deepEqual(
    seen.toSorted((a, b) => a - b),
    range(100),
  )
  for (const collector of collectors)
    assert.deepEqual(
      collector.seen,
      collector.seen.toSorted((a, b) => a - b),
    )
  await statsAre(queue, { ackedTotal: 100, enqueuedTotal: 100 })
}

/** Hands the one token on, so many times. */
async function play(queue: Queue<number>, turns: number, handOn: 'forward' | 'take'): Promise<void> {
  for (let played = 0; played < turns; played += 1) {
    if (handOn === 'take') {
      const token = await queue.take({ timeoutMs: 20_000 })
      assert.ok(token !== undefined, 'the token is lost')
      await queue.enqueue(token + 1)
    } else {
      const delivery = await receive(queue, 20_000)
      assert.equal(delivery.attempt, 1)
      assert.equal(await delivery.forward(queue, delivery.payload + 1), 'settled')
    }
  }
}

function pingPong(handOn: 'forward' | 'take') {
  return async (bench: Bench): Promise<void> => {
    const queue = bench.queue<number>()
    const peer = await bench.peer(queue)
    await queue.enqueue(0)
    const clients = [queue, peer]
    await Promise.all(range(10).map((index) => play(clients[index % 2] as Queue<number>, 100, handOn)))
    await statsAre(queue, { ready: 1, enqueuedTotal: 1_001 })
    assert.deepEqual(await drainPayloads(queue), [1_000])
  }
}

/** The simple things. */
export const basics: Concern = {
  name: 'basics',
  scenarios: [
    scenario('N1', 'one message, claimed and acked, leaves no trace', leavesNoTrace),
    scenario('N1', 'a delivery carries all that was enqueued with it', carriesEverything),
    scenario('N2', 'one consumer gets 200 messages in exactly their order', async (bench) => {
      const queue = bench.queue<number>()
      for (const payload of range(100)) await queue.enqueue(payload)
      await queue.enqueueAll(range(100, 100).map((payload) => ({ payload })))
      assert.deepEqual(await drainPayloads(queue), range(200))
      await statsAre(queue, { ackedTotal: 200 })
    }),
    scenario('N2', 'receive(), one after the other, gives the same order', async (bench) => {
      const queue = bench.queue<number>()
      await Promise.all(range(200).map((payload) => queue.enqueue(payload)))
      const stored = (await all(queue.peek({ state: 'ready' }))).map(({ payload }) => payload)
      const received: number[] = []
      for (let delivery = await queue.tryReceive(); delivery; delivery = await queue.tryReceive()) {
        received.push(delivery.payload)
        await delivery.ack()
      }
      assert.deepEqual(received, stored)
      assert.equal(new Set(received).size, 200)
    }),
    scenario('N3', 'ten consumers share 100 messages: each once, each consumer in order, nothing left', sharesOut),
    scenario('N4', 'ten consumers forward one token 1000 times and it is still one', pingPong('forward')),
    scenario('N4', 'ten consumers take and put back one token 1000 times and it is still one', pingPong('take')),
  ],
}
