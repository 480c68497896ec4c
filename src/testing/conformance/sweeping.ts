/**
 * Those who bring back what has lapsed, against each other and against the owner: N40 to N42.
 */
import assert from 'node:assert/strict'
import type { Claim, QueueDriver, RequestToken } from '../../driver.js'
import type { Queue } from '../../queue.js'
import { doomed, stopRenewing } from './doomed.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { all, now, pass, range, receive, SLACK_MS, shortLeaseMs, soon, statsAre, stays, turn, until } from './wait.js'

/** Two processes of the queue that do nothing but sweep while the work runs. */
async function whileSwept<R>(bench: Bench, queue: Queue<string>, work: () => Promise<R>): Promise<R> {
  const drivers = [await rawDriver(bench, queue), await rawDriver(bench, queue)]
  let busy = true
  const sweepers = drivers.map(async (driver) => {
    for (; busy; await pauseOf(bench)) await driver.sweep(100)
  })
  try {
    return await work()
  } finally {
    busy = false
    await Promise.all(sweepers)
    await Promise.all(drivers.map((driver) => driver.close()))
  }
}

/** They never rest, but where leases last for seconds: there fifty times a lease is as good, and leaves the store time. */
async function pauseOf({ features: { leaseStepMs } }: Bench): Promise<void> {
  await (leaseStepMs > 1 ? pass(leaseStepMs / 50) : turn())
}

/** The driver itself, through a client of its own, with no engine that would help. */
async function rawDriver(bench: Bench, queue: Queue<string>): Promise<QueueDriver> {
  const client = await bench.client()
  const driver = client.open(queue.name, { close: async () => {} })
  await driver.settings({})
  return driver
}

/** Twenty lapse at once at their last attempt, and two sweepers are after each. */
async function oneDeadLetterEach(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 60)
  const queue = bench.queue({ maxDeliveries: 1 })
  const driver = await rawDriver(bench, queue)
  const ids = range(20).map((n) => `m${n}`)
  await queue.enqueueAll(ids.map((id) => ({ id, payload: id })))
  await claimRaw(driver, leaseMs, 20)
  await driver.close()
  await whileSwept(bench, queue, async () => {
    await until('all are dead', async () => (await queue.stats()).dead === 20, leaseMs + SLACK_MS * 2)
  })
  const letters = await all(queue.deadLetters)
  assert.deepEqual(letters.map(({ id }) => id).sort(), [...ids].sort())
  for (const { attempts, deliveryCount, errors, reason } of letters) {
    assert.deepEqual([attempts, deliveryCount, errors], [1, 1, [reason]])
  }
  await statsAre(queue, { dead: 20, enqueuedTotal: 20 })
}

/** Every message is counted as moved by one of the sweepers, not by both. */
async function movedOnce(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 60)
  const queue = bench.queue()
  const [one, other] = [await rawDriver(bench, queue), await rawDriver(bench, queue)]
  await queue.enqueueAll(range(20).map((n) => ({ payload: `${n}` })))
  await claimRaw(one, leaseMs, 20)
  let moved = 0
  const sweepBoth = async () => {
    const replies = await Promise.all([one.sweep(100), other.sweep(100), one.sweep(100), other.sweep(100)])
    for (const reply of replies) moved += reply.moved
    return (await queue.stats()).ready === 20
  }
  await until('all are back', sweepBoth, leaseMs + SLACK_MS * 2)
  assert.ok(moved <= 20, `20 messages were moved ${moved} times`)
  for (const n of range(20)) {
    const { payload, attempt, deliveryCount } = await receive(queue)
    assert.deepEqual([payload, attempt, deliveryCount], [`${n}`, 2, 2])
  }
  await Promise.all([one.close(), other.close()])
}

let sessions = 0

function tokens(): () => RequestToken {
  sessions += 1
  const session = `raw-${sessions}-${Math.random().toString(36).slice(2)}`
  let seq = 0
  return () => {
    seq += 1
    return { session, seq, floor: seq }
  }
}

async function claimRaw(driver: QueueDriver, leaseMs: number, max: number): Promise<readonly Claim[]> {
  const { claims } = await driver.claim({ token: tokens()(), max, leaseMs, take: false, consumer: 'raw' })
  assert.equal(claims.length, max)
  return claims
}

/** Instants around the end of a lease. */
const EDGES_MS = range(21).map((n) => (n - 10) * 2)

/** Waits until so long after `startedAt`, to the turn of the loop. */
async function at(startedAt: number, afterMs: number): Promise<void> {
  await pass(Math.max(0, afterMs - 10 - (now() - startedAt)))
  while (now() - startedAt < afterMs) await turn()
}

/** The ack is on its way when the lease ends, and arrives around that instant. */
async function lateAck(bench: Bench, edgeMs: number): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 200)
  const queue = bench.queue()
  const { queue: owner, client } = await doomed(bench, queue, { leaseMs })
  await queue.enqueue('a', { id: 'a' })
  stopRenewing(client)
  const delivery = await receive(owner)
  const startedAt = now()
  const fault = client.inject({ verb: 'settle', kind: 'hold-request' })
  const acking = delivery.ack()
  const answer = await whileSwept(bench, queue, async () => {
    await at(startedAt, leaseMs + edgeMs)
    fault.release()
    return soon('the answer', acking)
  })
  if (answer === 'settled') return ackedAndGone(queue)
  assert.equal(answer, 'stale')
  const again = await receive(queue, leaseMs + SLACK_MS)
  assert.deepEqual(
    [again.id, again.attempt, again.deliveryCount],
    ['a', delivery.attempt + 1, delivery.deliveryCount + 1],
  )
  await statsAre(queue, { claimed: 1, ackedTotal: 0 })
  assert.equal(await again.ack(), 'settled')
  await ackedAndGone(queue)
}

async function ackedAndGone(queue: Queue<string>): Promise<void> {
  await statsAre(queue, { ackedTotal: 1, enqueuedTotal: 1 })
  assert.equal(await queue.tryReceive(), undefined)
}

/** The ack arrives when another has the message. */
async function ackAfterRedelivery(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 300)
  const queue = bench.queue()
  const { queue: owner, client } = await doomed(bench, queue, { leaseMs })
  await queue.enqueue('a')
  stopRenewing(client)
  const delivery = await receive(owner)
  // Sent again it is held again, where the lease is longer than the wait before that.
  const fault = client.inject({ verb: 'settle', kind: 'hold-request', times: 2 })
  const acking = delivery.ack()
  await soon('the ack is on its way', fault.reached)
  const again = await receive(queue, leaseMs + SLACK_MS)
  assert.equal(again.attempt, 2)
  fault.release()
  assert.equal(await soon('the answer', acking), 'stale')
  await statsAre(queue, { claimed: 1, ackedTotal: 0 })
  assert.equal(await again.ack(), 'settled')
  await ackedAndGone(queue)
}

/** A renewal that arrives around the end of the lease: where it is accepted the claim lives on, else it does not. */
async function renewalAtTheEdge(bench: Bench, edgeMs: number): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 100)
  const queue = bench.queue()
  await queue.enqueue('a', { id: 'a' })
  const driver = await rawDriver(bench, queue)
  const [claim] = await claimRaw(driver, leaseMs, 1)
  const startedAt = now()
  assert.ok(claim)
  const { id, token } = claim
  await whileSwept(bench, queue, async () => {
    await at(startedAt, leaseMs + edgeMs)
    const [renewed] = await driver.renew([{ id, token, leaseMs: 60_000 }])
    if (renewed?.state === 'renewed') await livesOn(queue, driver, claim)
    else await lives(queue)
  })
  await driver.close()
}

async function livesOn(queue: Queue<string>, driver: QueueDriver, { id, token }: Claim): Promise<void> {
  await pass(30)
  assert.equal(await queue.tryReceive(), undefined, 'reclaimed though the renewal was accepted')
  await statsAre(queue, { claimed: 1 })
  const [result] = await driver.settle([{ kind: 'ack', id, token }], tokens()())
  assert.equal(result?.state, 'acked')
  await ackedAndGone(queue)
}

/** The other way: a renewal that was refused means that the message is there for the next. */
async function lives(queue: Queue<string>): Promise<void> {
  const again = await receive(queue, SLACK_MS * 2)
  assert.deepEqual([again.id, again.attempt, again.deliveryCount], ['a', 2, 2])
  assert.equal(await again.ack(), 'settled')
}

/** The engine's own renewals, and two sweepers that wait for it to miss one. */
async function liveOwner(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 900)
  const queue = bench.queue({ leaseMs })
  const peer = await bench.peer(queue, { leaseMs })
  await queue.enqueue('a')
  const delivery = await receive(queue)
  const controller = new AbortController()
  const taken = peer.receive({ signal: controller.signal })
  taken.catch(() => {})
  await whileSwept(bench, queue, () => stays(leaseMs * 2, 'the message was reclaimed from a live owner', taken))
  controller.abort()
  assert.equal(delivery.signal.aborted, false)
  assert.equal(await delivery.ack(), 'settled')
  await ackedAndGone(queue)
}

/** Sweepers, races at the end of a lease. */
export const sweeping: Concern = {
  name: 'sweeping',
  scenarios: [
    scenario('N40', 'of two sweepers one makes the dead letter, with one reason', oneDeadLetterEach),
    scenario('N40', 'of two sweepers one brings back what has lapsed, and counts one attempt', movedOnce),
    scenario('N41', 'an ack at the end of its lease is settled and final, or stale and redelivered', async (bench) => {
      await Promise.all(EDGES_MS.map((edgeMs) => lateAck(bench, edgeMs)))
    }),
    scenario('N41', 'an ack that arrives after the redelivery is stale', ackAfterRedelivery),
    scenario(
      'N42',
      'a renewal at the end of its lease is accepted and holds, or refused and redelivered',
      async (bench) => {
        await Promise.all(EDGES_MS.map((edgeMs) => renewalAtTheEdge(bench, edgeMs)))
      },
    ),
    scenario('N42', 'a live owner keeps its claim however much is swept', liveOwner),
  ],
}
