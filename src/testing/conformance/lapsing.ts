/**
 * Many leases that end at once, while their owner still settles and renews: more of N41 and N42.
 */
import assert from 'node:assert/strict'
import type { Claim, QueueDriver, RenewResult, RequestToken, SettleState } from '../../driver.js'
import type { Queue } from '../../queue.js'
import { sweptUntil } from './doomed.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { now, pass, range, receive, shortLeaseMs, statsAre, until } from './wait.js'

const MESSAGES = 40

let sessions = 0

/** An owner without an engine, which would be too careful to settle at the very end of a lease. */
class RawOwner {
  private readonly session: string
  private seq = 0

  constructor(
    private readonly driver: QueueDriver,
    queue: string,
  ) {
    sessions += 1
    this.session = `lapsing-${sessions}-${queue}`
  }

  async claim(max: number, leaseMs: number): Promise<readonly Claim[]> {
    const reply = await this.driver.claim({ token: this.token(), max, leaseMs, take: false, consumer: 'raw' })
    return reply.claims
  }

  async ack({ id, token }: Claim): Promise<SettleState | undefined> {
    return (await this.driver.settle([{ id, token, kind: 'ack' }], this.token()))[0]?.state
  }

  async renew({ id, token }: Claim, leaseMs: number): Promise<RenewResult['state'] | undefined> {
    return (await this.driver.renew([{ id, token, leaseMs }]))[0]?.state
  }

  private token(): RequestToken {
    this.seq += 1
    return { session: this.session, seq: this.seq, floor: 1 }
  }
}

interface Stage {
  readonly queue: Queue<number>
  readonly owner: RawOwner
  /** All messages, each under a claim of the owner with the same short lease. */
  readonly claims: readonly Claim[]
  /** About when the leases end, by our own clock. */
  readonly endsAt: number
}

async function onStage(bench: Bench, play: (stage: Stage) => Promise<void>): Promise<void> {
  const queue = bench.queue<number>()
  await queue.enqueueAll(range(MESSAGES).map((payload) => ({ payload })))
  const driver = bench.backend.open(queue.name, { close: () => Promise.resolve() })
  try {
    const owner = new RawOwner(driver, queue.name)
    const claims: Claim[] = []
    while (claims.length < MESSAGES)
      claims.push(...(await owner.claim(MESSAGES - claims.length, shortLeaseMs(bench.features, 100))))
    await play({ queue, owner, claims, endsAt: now() + (claims[0]?.leaseMs ?? 0) })
  } finally {
    await driver.close()
  }
}

/** Does something with each claim, one after the other, from a little before the leases end to a little after. */
async function spreadAround<R>({ claims, endsAt }: Stage, act: (claim: Claim) => Promise<R>): Promise<R[]> {
  return Promise.all(
    claims.map(async (claim, index) => {
      await pass(Math.max(0, endsAt - now() - 12 + index * 0.6))
      return act(claim)
    }),
  )
}

function idsWith<R>(claims: readonly Claim[], results: readonly R[], wanted: R): string[] {
  return claims.filter((_, index) => results[index] === wanted).map(({ id }) => id)
}

/** Consumers of two clients that take whatever lapses; gives the ids they took, and stops them. */
async function rivals(bench: Bench, queue: Queue<number>) {
  const taken: string[] = []
  const sources = [queue, await bench.peer(queue)].map((client) => client.source({ credit: 5 }))
  for (const source of sources)
    source.subscribe((delivery) => {
      taken.push(`${delivery.id} ${delivery.attempt}`)
      delivery.ack().catch(() => {})
    })
  return { taken, stop: () => Promise.all(sources.map((source) => source.stop())) }
}

async function acksAtTheEnd(bench: Bench): Promise<void> {
  await onStage(bench, async (stage) => {
    const { queue, owner, claims } = stage
    const { taken, stop } = await rivals(bench, queue)
    const states = await spreadAround(stage, (claim) => owner.ack(claim))
    const acked = idsWith(claims, states, 'acked')
    const stale = idsWith(claims, states, 'stale')
    assert.equal(acked.length + stale.length, MESSAGES, `an ack is one of two: ${states.join()}`)
    await until('all are acked by somebody', async () => (await queue.stats()).ackedTotal === MESSAGES)
    await stop()
    assert.deepEqual(taken.toSorted(), stale.map((id) => `${id} 2`).toSorted())
    await statsAre(queue, { ackedTotal: MESSAGES, enqueuedTotal: MESSAGES })
  })
}

async function renewalsAtTheEnd(bench: Bench): Promise<void> {
  await onStage(bench, async (stage) => {
    const { queue, owner, claims } = stage
    const { taken, stop } = await rivals(bench, queue)
    const states = await spreadAround(stage, (claim) => owner.renew(claim, 20_000))
    const renewed = idsWith(claims, states, 'renewed')
    const stale = idsWith(claims, states, 'stale')
    assert.equal(renewed.length + stale.length, MESSAGES, `a renewal is one of two: ${states.join()}`)
    await until('what lapsed is acked', async () => (await queue.stats()).ackedTotal === stale.length)
    await stop()
    assert.deepEqual(taken.toSorted(), stale.map((id) => `${id} 2`).toSorted())
    await statsAre(queue, { claimed: renewed.length, ackedTotal: stale.length })
    for (const claim of claims)
      assert.equal(
        await owner.ack(claim),
        renewed.includes(claim.id) ? 'acked' : 'stale',
        'a renewal that was told holds',
      )
  })
}

/** A claim that is not live any more is not revived by a late renewal, nor is the one that replaced it touched. */
async function lateRenewal(bench: Bench): Promise<void> {
  await onStage(bench, async ({ queue, owner, claims, endsAt }) => {
    const [first] = claims as [Claim]
    await sweptUntil(bench, queue, 'the lapse', ({ ready }) => ready === MESSAGES)
    assert.ok(now() >= endsAt - 30, 'lapsed before its time')
    assert.equal(await owner.renew(first, 20_000), 'stale')
    await statsAre(queue, { ready: MESSAGES })
    const delivery = await receive(queue)
    assert.deepEqual([delivery.id, delivery.attempt], [first.id, 2])
    assert.equal(await owner.renew(first, 1), 'stale')
    assert.equal(await owner.ack(first), 'stale')
    await statsAre(queue, { ready: MESSAGES - 1, claimed: 1 })
    assert.equal(await delivery.ack(), 'settled')
  })
}

/** Many leases that end. */
export const lapsing: Concern = {
  name: 'lapsing',
  scenarios: [
    scenario(
      'N41',
      'acks that race waiting consumers are applied, or their messages redelivered: never both',
      acksAtTheEnd,
    ),
    scenario('N42', 'renewals that were accepted at the last moment hold against waiting consumers', renewalsAtTheEnd),
    scenario('N42', 'a renewal that comes too late revives nothing and disturbs nobody', lateRenewal),
  ],
}
