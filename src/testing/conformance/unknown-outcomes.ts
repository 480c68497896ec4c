/**
 * Settlements that were applied while their answer was lost: N27.
 */
import assert from 'node:assert/strict'
import type { Delivery, Settlement } from '../../delivery.js'
import { SettlementUnknownError } from '../../errors.js'
import type { Queue } from '../../queue.js'
import type { FaultKind } from '../faulty-backend.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { callsOf, EARLY_MS, now, receive, SLACK_MS, soon, statsAre, within } from './wait.js'

interface Settling {
  readonly settle: (delivery: Delivery<string>, target: Queue<string>) => Promise<Settlement>
  /** What the stats of the queue are then. */
  readonly stats: Parameters<typeof statsAre>[1]
  /** What the target of a forward has then. */
  readonly forwarded?: number
}

const SETTLINGS: Readonly<Record<string, Settling>> = {
  ack: { settle: (delivery) => delivery.ack(), stats: { ackedTotal: 1 } },
  requeue: { settle: (delivery) => delivery.requeue(), stats: { ready: 1 } },
  'delayed requeue': { settle: (delivery) => delivery.requeue({ delayMs: 60_000 }), stats: { delayed: 1 } },
  release: { settle: (delivery) => delivery.release(), stats: { ready: 1 } },
  'dead letter': { settle: (delivery) => delivery.deadLetter('why'), stats: { dead: 1 } },
  forward: {
    settle: (delivery, target) => delivery.forward(target, 'on'),
    stats: { forwardedTotal: 1 },
    forwarded: 1,
  },
}

/** Settles while the first answers are lost; a repeat has to answer "done", and must not do it again. */
async function settlesOnce(bench: Bench, name: string, kind: FaultKind, times: number): Promise<void> {
  const { settle, stats, forwarded = 0 } = SETTLINGS[name] as Settling
  const backend = await bench.client()
  const queue = bench.queue({ backend })
  const target = bench.queue({ backend })
  await queue.enqueue('x')
  const delivery = await receive(queue)
  await target.stats()
  backend.inject({ verb: 'settle', kind, times })
  assert.equal(await soon(`the ${name}`, settle(delivery, target)), 'settled', `${name}, ${kind}`)
  assert.equal(callsOf(backend, 'settle'), times + 1)
  assert.equal(delivery.signal.aborted, false, 'a settled delivery has lost nothing')
  await statsAre(queue, { ...stats, enqueuedTotal: 1 })
  await statsAre(target, { ready: forwarded, enqueuedTotal: forwarded })
  if (stats.ready === 1) assert.equal((await receive(queue)).attempt, name === 'requeue' ? 2 : 1)
}

async function neverConfirmed(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await queue.enqueue('x', { id: 'x' })
  const delivery = await receive(queue)
  const fault = bench.backend.inject({ verb: 'settle', kind: 'fail-reply', times: Number.POSITIVE_INFINITY })
  const startedAt = now()
  await assert.rejects(within(5_000 + SLACK_MS, 'the ack', delivery.ack('result')), SettlementUnknownError)
  assert.ok(now() - startedAt > 5_000 - EARLY_MS, 'given up before its bound')
  const asked = callsOf(bench.backend, 'settle')
  assert.notEqual(await delivery.ack(), 'settled', 'it is not tried again under a claim that may be gone')
  assert.equal(callsOf(bench.backend, 'settle'), asked)
  fault.remove()
  await statsAre(peer, { ackedTotal: 1 })
  assert.deepEqual(await peer.outcome('x', { timeoutMs: 0 }), { state: 'done', result: 'result' })
}

/** The lease runs out while the answer is under way: it was settled in time all the same. */
async function confirmedAfterTheLease(bench: Bench): Promise<void> {
  const leaseMs = Math.max(100, bench.features.leaseStepMs * 2)
  const queue = bench.queue({ leaseMs })
  await queue.enqueue('x')
  const delivery = await receive(queue)
  const fault = bench.backend.inject({ verb: 'settle', kind: 'hold-reply' })
  const acked = delivery.ack()
  await soon('the ack is applied', fault.reached)
  assert.equal(await queue.receive({ timeoutMs: leaseMs + 100 }), undefined)
  fault.release()
  assert.equal(await soon('the ack', acked), 'settled')
  await statsAre(queue, { ackedTotal: 1 })
}

/** Answers that were lost. */
export const unknownOutcomes: Concern = {
  name: 'unknown outcomes',
  scenarios: [
    ...Object.keys(SETTLINGS).map((name) =>
      scenario('N27', `a ${name} whose answers fail is asked again, answers settled and happens once`, (bench) =>
        settlesOnce(bench, name, 'fail-reply', 2),
      ),
    ),
    scenario(
      'N27',
      'a settlement that is never answered is asked again, answers settled and happens once',
      async (bench) => {
        await Promise.all(Object.keys(SETTLINGS).map((name) => settlesOnce(bench, name, 'drop-reply', 1)))
      },
    ),
    scenario(
      'N27',
      'an ack that was applied answers settled though its lease ran out meanwhile',
      confirmedAfterTheLease,
    ),
    scenario('N27', 'a settlement that is never confirmed is reported as unknown, within its bound', neverConfirmed),
  ],
}
