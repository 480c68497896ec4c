import assert from 'node:assert/strict'
import type { Delivery, Settlement } from '../../delivery.js'
import { BackendError } from '../../errors.js'
import type { Queue } from '../../queue.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, bury, nextNow } from './steps.js'
import { assertConserved, pass, range, seeded, shortLeaseMs, until, within } from './wait.js'

/** What the numbers say is so, at every instant. */
export const depths: Concern = {
  name: 'depths and totals',
  scenarios: [
    scenario('N77', 'a new queue counts nothing', async (bench) => {
      assert.deepEqual(await bench.queue().stats(), {
        ready: 0,
        delayed: 0,
        claimed: 0,
        dead: 0,
        oldestReadyAgeMs: 0,
        paused: false,
        enqueuedTotal: 0,
        ackedTotal: 0,
        forwardedTotal: 0,
        purgedTotal: 0,
        expiredTotal: 0,
        cancelledTotal: 0,
        droppedTotal: 0,
      })
    }),

    scenario('N77', 'each state is counted exactly, in every process', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await bury(queue, ['x', 'y'])
      await queue.enqueueAll(range(7).map((n) => ({ payload: String(n), delayMs: n < 2 ? 60_000 : 0 })))
      await nextNow(queue)
      await nextNow(peer)
      for (const each of [queue, peer]) {
        await assertDepth(each, { ready: 3, delayed: 2, claimed: 2, dead: 2, enqueuedTotal: 9 })
        assert.equal(await each.size(), 3)
      }
    }),

    scenario('N77', 'each way to end is counted in a total of its own', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 6, whenFull: 'dropOldest' } })
      await queue.enqueueAll(range(6).map((n) => ({ id: String(n), payload: String(n) })))
      await queue.enqueue('6', { id: '6' })
      await (await nextNow(queue)).ack()
      await (await nextNow(queue)).forward(bench.queue(), 'moved')
      await queue.cancel('3')
      await (await nextNow(queue)).deadLetter('no')
      await queue.enqueue('short', { ttlMs: 1, id: 'short' })
      await pass(20)
      await until('it expires', async () => (await queue.outcome('short')).state === 'expired')
      assert.equal(await queue.purge(), 2)
      await assertDepth(queue, { ready: 0, claimed: 0, dead: 1, enqueuedTotal: 8 })
      await assertDepth(queue, { ackedTotal: 1, forwardedTotal: 1, cancelledTotal: 1, droppedTotal: 1 })
      await assertDepth(queue, { expiredTotal: 1, purgedTotal: 2 })
    }),

    scenario('N77', 'a duplicate is not counted', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll(range(4).map(() => ({ id: 'a', payload: 'a' })))
      await assertDepth(queue, { ready: 1, enqueuedTotal: 1 })
    }),

    scenario('N77', 'the age of the oldest ready message grows, and goes with it', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('old', { priority: 9 })
      await pass(120)
      await queue.enqueue('new')
      const { oldestReadyAgeMs } = await queue.stats()
      assert.ok(oldestReadyAgeMs >= 100 && oldestReadyAgeMs < 5_000, `${oldestReadyAgeMs} ms`)
      await (await nextNow(queue)).ack()
      assert.ok((await queue.stats()).oldestReadyAgeMs >= oldestReadyAgeMs, 'the old one is still there')
      await (await nextNow(queue)).ack()
      assert.equal((await queue.stats()).oldestReadyAgeMs, 0)
    }),

    scenario('N77', 'numbers that cannot be read are an error, and no zero', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      for (const ask of [() => queue.stats(), () => queue.size()]) {
        const error = new BackendError('cannot read')
        bench.backend.inject({ verb: 'stats', kind: 'fail-request', error })
        await assert.rejects(ask(), (rejected) => rejected === error)
        bench.backend.inject({ verb: 'stats', kind: 'fail-reply', error })
        await assert.rejects(ask(), (rejected) => rejected === error)
      }
      assert.equal(await queue.size(), 1)
    }),

    scenario('N77', 'numbers that cannot be read just now are asked for again', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      bench.backend.inject({ verb: 'stats', kind: 'fail-request', times: 3 })
      assert.equal(await within(5_000, 'the size', queue.size()), 1)
    }),

    ...[1, 2, 3].map((seed) =>
      scenario('X15', `nothing is lost or made up at any instant of a random workout (seed ${seed})`, (bench) =>
        workout(bench, seed),
      ),
    ),
  ],
}

const WORKERS = 3
const STEPS = 120

/** Several workers do anything that a queue can do, in an order that the seed decides, while another one keeps count. */
async function workout(bench: Bench, seed: number): Promise<void> {
  const queue = bench.queue({
    leaseMs: shortLeaseMs(bench.features, 60),
    maxDeliveries: 3,
    limits: { maxLength: 40, whenFull: seed % 2 ? 'reject' : 'dropOldest' },
  })
  const target = bench.queue()
  await queue.stats()
  const peer = await bench.peer(queue)
  const tally = { enqueued: 0, acked: 0, forwarded: 0, taken: 0 }
  let working = true
  const counting = (async () => {
    let samples = 0
    while (working) {
      assertConserved(await peer.stats(), `with seed ${seed}`)
      samples += 1
      await pass(1)
    }
    return samples
  })()
  const workers = range(WORKERS).map((n) => {
    const random = seeded(seed * 100 + n)
    // Only within one backend object is a forward one step; the other worker does without.
    return n % 2 ? worker(peer, undefined, random, tally) : worker(queue, target, random, tally)
  })
  const worked = Promise.all(workers).finally(() => {
    working = false
  })
  const [samples] = await within(20_000, 'the workers end', Promise.all([counting, worked]))
  assert.ok(samples > 5, 'hardly anything was counted')
  await until('nothing is in flight', async () => (await queue.stats()).claimed === 0)
  await assertDepth(queue, { enqueuedTotal: tally.enqueued, forwardedTotal: tally.forwarded })
  const { ackedTotal } = await queue.stats()
  // What was taken is acked on its way; a purge, or the end of the short lease, may come first.
  assert.ok(ackedTotal >= tally.acked && ackedTotal <= tally.acked + tally.taken, `${ackedTotal} acked`)
  await assertDepth(target, { ready: tally.forwarded, enqueuedTotal: tally.forwarded })
}

interface Tally {
  enqueued: number
  acked: number
  forwarded: number
  taken: number
}

async function worker(
  queue: Queue<string>,
  target: Queue<string> | undefined,
  random: () => number,
  tally: Tally,
): Promise<void> {
  const held: Delivery<string>[] = []
  for (const _ of range(STEPS)) {
    const choice = Math.floor(random() * 10)
    if (choice < 4) await produce(queue, random, tally)
    else if (choice < 8) await consume(queue, target, held, random, tally)
    else await administer(queue, random, tally)
    if (random() < 0.1) await pass(random() * 15)
  }
  for (const delivery of held) if ((await delivery.ack()) === 'settled') tally.acked += 1
}

async function produce(queue: Queue<string>, random: () => number, tally: Tally): Promise<void> {
  const entry = () => ({
    id: String(Math.floor(random() * 200)),
    payload: 'x',
    priority: Math.floor(random() * 3),
    delayMs: random() < 0.3 ? random() * 40 : 0,
    ...(random() < 0.3 && { ttlMs: 1 + random() * 60 }),
  })
  try {
    const stored = await queue.enqueueAll(range(1 + Math.floor(random() * 3)).map(entry))
    tally.enqueued += stored.filter(({ status }) => status === 'enqueued').length
  } catch (error) {
    assert.equal((error as { code?: unknown }).code, 'ERR_MILLRACE_QUEUE_FULL', String(error))
  }
}

async function consume(
  queue: Queue<string>,
  target: Queue<string> | undefined,
  held: Delivery<string>[],
  random: () => number,
  tally: Tally,
): Promise<void> {
  const delivery = await queue.tryReceive()
  if (delivery) held.push(delivery)
  if (held.length < 3 && random() < 0.5) return
  const [settled] = held.splice(Math.floor(random() * held.length), 1)
  if (!settled) return
  const choice = Math.floor(random() * 5)
  // Counted after the answer: others count meanwhile.
  const count = (name: keyof Tally, answer: Settlement) => {
    if (answer === 'settled') tally[name] += 1
  }
  if (choice === 0 && target) count('forwarded', await settled.forward(target, 'x'))
  else if (choice < 2) count('acked', await settled.ack())
  else if (choice === 2) await settled.requeue({ delayMs: random() < 0.5 ? 20 : 0 })
  else if (choice === 3) await settled.deadLetter('no')
  else await settled.release()
}

async function administer(queue: Queue<string>, random: () => number, tally: Tally): Promise<void> {
  const id = String(Math.floor(random() * 200))
  const choice = Math.floor(random() * 6)
  if (choice < 2) await queue.cancel(id)
  else if (choice === 2) await queue.deadLetters.requeue(id).catch(() => false)
  else if (choice === 3) await queue.deadLetters.purgeAll(() => random() < 0.5)
  else if (choice === 4)
    await queue.purge({ state: (['ready', 'delayed', 'claimed'] as const)[Math.floor(random() * 3)] ?? 'ready' })
  else if ((await queue.tryTake()) !== undefined) tally.taken += 1
}
