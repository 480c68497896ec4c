/**
 * Consumers that die, at every step of everything that they do: N25 and N26.
 */
import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import type { EnqueueOptions, Queue } from '../../queue.js'
import type { FaultKind } from '../faulty-backend.js'
import { type Doomed, doomed } from './doomed.js'
import { type Bench, type Concern, scenario } from './kit.js'
import {
  all,
  assertConserved,
  now,
  range,
  receive,
  SLACK_MS,
  shortLeaseMs,
  soon,
  statsAre,
  turn,
  until,
  within,
} from './wait.js'

/** How much later than the lease a dead consumer's claims are visible at the latest. */
const RECOVERY_MS = 1_000

/** Only who dies needs a short lease, unless that of the owner is the point. */
async function holdsFive(bench: Bench, leaseMs: number, ofOwner?: { readonly leaseMs: number }) {
  const owner = bench.queue<number>(ofOwner)
  const dying = await doomed(bench, owner, { leaseMs })
  await owner.enqueueAll(range(5).map((payload) => ({ payload })))
  const held: Delivery<number>[] = []
  dying.queue.source({ credit: 5 }).subscribe({ next: (delivery) => held.push(delivery), error: () => {} })
  await until('five deliveries', () => held.length === 5)
  return { owner, dying, held }
}

async function killed(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 400)
  const { owner, dying } = await holdsFive(bench, leaseMs)
  dying.kill()
  const startedAt = now()
  for (const payload of range(5)) {
    const delivery = await receive(owner)
    assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], [payload, 2, 2])
    assert.equal(await delivery.ack(), 'settled')
  }
  const took = now() - startedAt
  assert.ok(took < leaseMs + RECOVERY_MS, `five claims came back after ${took} ms`)
  await statsAre(owner, { ackedTotal: 5 })
}

/** It was only cut off for longer than its leases. */
async function comesBack(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 400)
  const { owner, dying, held } = await holdsFive(bench, leaseMs)
  dying.kill()
  const current: Delivery<number>[] = []
  for (const _ of held) current.push(await receive(owner, leaseMs + RECOVERY_MS))
  dying.revive()
  assert.deepEqual(await soon('late acks', Promise.all(held.map((delivery) => delivery.ack()))), Array(5).fill('stale'))
  assert.ok(held.every(({ signal }) => signal.aborted))
  await statsAre(owner, { claimed: 5 })
  for (const delivery of current) assert.equal(await delivery.ack(), 'settled')
}

/** A live consumer beside a dead one keeps what it holds. */
async function livesOn(bench: Bench): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 400)
  const { owner, dying } = await holdsFive(bench, leaseMs, { leaseMs })
  await owner.enqueue(5)
  const mine = await receive(owner)
  dying.kill()
  for (const _ of range(5)) assert.equal((await receive(owner, leaseMs + RECOVERY_MS)).attempt, 2)
  assert.equal(mine.signal.aborted, false)
  assert.equal(await mine.ack(), 'settled')
}

/** Something that a consumer does with what is in the queue. */
interface Play {
  readonly entries: readonly EnqueueOptions[]
  act(queue: Queue<string>): Promise<unknown>
}

const ONE: readonly EnqueueOptions[] = [{}]

async function onReceived(queue: Queue<string>, act: (delivery: Delivery<string>) => Promise<unknown>): Promise<void> {
  await act(await receive(queue, 15_000))
}

async function severalAtOnce(queue: Queue<string>): Promise<void> {
  const held = await Promise.all(range(5).map(() => receive(queue, 15_000)))
  held.sort((one, other) => one.payload.localeCompare(other.payload))
  const [a, b, c, d, e] = held as [Held, Held, Held, Held, Held]
  await Promise.all([a.ack(), b.requeue(), c.deadLetter('why'), d.release(), e.requeue({ delayMs: 20 })])
}

type Held = Delivery<string>

const PLAYS: Readonly<Record<string, Play>> = {
  claim: { entries: ONE, act: (queue) => onReceived(queue, async () => {}) },
  ack: { entries: ONE, act: (queue) => onReceived(queue, (delivery) => delivery.ack()) },
  requeue: { entries: ONE, act: (queue) => onReceived(queue, (delivery) => delivery.requeue()) },
  'delayed requeue': {
    entries: ONE,
    act: (queue) => onReceived(queue, (delivery) => delivery.requeue({ delayMs: 20 })),
  },
  release: { entries: ONE, act: (queue) => onReceived(queue, (delivery) => delivery.release()) },
  promotion: { entries: [{ delayMs: 20 }], act: (queue) => onReceived(queue, (delivery) => delivery.ack()) },
  'dead letter': { entries: ONE, act: (queue) => onReceived(queue, (delivery) => delivery.deadLetter('why')) },
  forward: { entries: ONE, act: (queue) => onReceived(queue, (delivery) => delivery.forward(queue, 'forwarded')) },
  batch: { entries: [{}, {}, {}, {}, {}], act: severalAtOnce },
}

/** A message is somewhere once: handed over here, dead, or counted as acked or forwarded. */
interface Found {
  readonly deliveries: readonly Delivery<string>[]
  readonly dead: number
  readonly gone: number
}

/** Takes what can be taken until nothing is left, and looks that every message is in exactly one place all the time. */
async function findAll(owner: Queue<string>, boundMs: number): Promise<Found> {
  const deliveries: Delivery<string>[] = []
  let stats = await owner.stats()
  const nothingLeft = async () => {
    const delivery = await owner.tryReceive()
    if (delivery) deliveries.push(delivery)
    stats = await owner.stats()
    assertConserved(stats)
    return stats.ready + stats.delayed === 0 && stats.claimed === deliveries.length
  }
  await until('everything is found', nothingLeft, boundMs)
  const dead = (await all(owner.deadLetters)).map(({ id }) => id)
  const held = deliveries.map(({ id }) => id)
  assert.equal(new Set([...dead, ...held]).size, dead.length + held.length, 'in two places')
  assert.equal(dead.length, stats.dead)
  assert.equal(stats.forwardedTotal, deliveries.filter(({ payload }) => payload === 'forwarded').length)
  return { deliveries, dead: dead.length, gone: stats.ackedTotal + stats.forwardedTotal }
}

interface Stage {
  readonly owner: Queue<string>
  readonly actor: Doomed<string>
}

async function setTheStage(bench: Bench, play: Play, leaseMs: number): Promise<Stage> {
  const owner = bench.queue()
  const actor = await doomed(bench, owner, { leaseMs })
  await owner.enqueueAll(play.entries.map((entry, index) => ({ ...entry, payload: `message ${index}` })))
  return { owner, actor }
}

/** How many calls a play takes when nothing goes wrong. */
async function callsOfPlay(bench: Bench, play: Play): Promise<number> {
  const { actor } = await setTheStage(bench, play, 30_000)
  await soon('the play', play.act(actor.queue))
  return actor.client.calls.length
}

/** The actor dies just before or just after one of its calls. All that it left is found once, and works. */
async function crashAt(bench: Bench, play: Play, call: number, when: 'before' | 'after'): Promise<void> {
  const leaseMs = shortLeaseMs(bench.features, 400)
  const { owner, actor } = await setTheStage(bench, play, leaseMs)
  actor.kill({ call, when })
  play.act(actor.queue).catch(() => {})
  await turn()
  const { deliveries, dead, gone } = await findAll(owner, leaseMs + RECOVERY_MS + SLACK_MS)
  const total = play.entries.length
  const forwarded = deliveries.filter(({ payload }) => payload === 'forwarded').length
  assert.equal(deliveries.length + dead + gone, total + forwarded, `crash ${when} call ${call}`)
  for (const delivery of deliveries) {
    assert.ok(delivery.attempt <= 2, `attempt ${delivery.attempt} after one crash`)
    assert.equal(await delivery.ack(), 'settled')
  }
  await statsAre(owner, { dead })
}

function crashEverywhere(play: Play) {
  return async (bench: Bench): Promise<void> => {
    const calls = await callsOfPlay(bench, play)
    assert.ok(calls >= 2)
    await Promise.all(
      range(calls, 1).flatMap((call) => [crashAt(bench, play, call, 'before'), crashAt(bench, play, call, 'after')]),
    )
  }
}

/** Where everything is after the play, with one call in trouble or none. */
async function endOf(
  bench: Bench,
  play: Play,
  fault?: { readonly kind: FaultKind; readonly nth: number },
): Promise<unknown> {
  const { owner, actor } = await setTheStage(bench, play, 30_000)
  if (fault) actor.client.inject({ verb: '*', ...fault })
  const what = fault ? `${fault.kind} at call ${fault.nth}` : 'no fault'
  await within(20_000, what, play.act(actor.queue))
  // A listing reads one state after the other, and would miss a message that becomes ready in between.
  await until('no delay is left', async () => (await owner.stats()).delayed === 0)
  const { ready, claimed, dead, ackedTotal, forwardedTotal } = await owner.stats()
  const listed = (await all(owner.peek())).map(({ payload, attempt, deliveryCount }) => [
    payload,
    attempt,
    deliveryCount,
  ])
  return { ready, claimed, dead, ackedTotal, forwardedTotal, listed: listed.map(String).toSorted() }
}

/** One call fails, or is never answered; asked again it ends as if nothing had happened. */
async function troubleEverywhere(bench: Bench, play: Play, kinds: readonly FaultKind[]): Promise<void> {
  const calls = await callsOfPlay(bench, play)
  const expected = await endOf(bench, play)
  const troubles = range(calls, 1).flatMap((nth) => kinds.map((kind) => ({ kind, nth })))
  await Promise.all(
    troubles.map(async (trouble) =>
      assert.deepEqual(await endOf(bench, play, trouble), expected, `${trouble.kind} at call ${trouble.nth}`),
    ),
  )
}

async function silenceEverywhere(bench: Bench): Promise<void> {
  await Promise.all(Object.values(PLAYS).map((play) => troubleEverywhere(bench, play, ['drop-request', 'drop-reply'])))
}

/** Crashes. */
export const crashes: Concern = {
  name: 'crashes',
  scenarios: [
    scenario('N25', 'the claims of a dead consumer come back with attempt 2, soon after their lease', killed),
    scenario('N25', 'a consumer that was only cut off finds its claims stale', comesBack),
    scenario('N25', 'a live consumer keeps what it holds while a dead one loses its claims', livesOn),
    ...Object.entries(PLAYS).map(([name, play]) =>
      scenario(
        'N26',
        `a crash before or after each call of a ${name} leaves every message in one place`,
        crashEverywhere(play),
      ),
    ),
    ...Object.entries(PLAYS).map(([name, play]) =>
      scenario(
        'N26',
        `calls of a ${name} that fail, before or after they are run, change nothing in how it ends`,
        (bench) => troubleEverywhere(bench, play, ['fail-request', 'fail-reply']),
      ),
    ),
    scenario(
      'N26',
      'calls that are never answered are asked again, and all ends as if nothing had happened',
      silenceEverywhere,
    ),
  ],
}
