import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Claim, NewMessage } from '../../../src/driver.js'
import { QueueFullError } from '../../../src/errors.js'
import { leak, now, Rig } from './harness.js'
import { type Held, NaiveQueue, type Rules } from './naive-queue.js'

const IDS = Array.from({ length: 12 }, (_, index) => `m${index}`)
const LISTING = { limit: 1_000 }

/** The driver and the model side by side: each command goes to both, and then all that shows is compared. */
class Pair {
  readonly rig = new Rig()
  readonly model: NaiveQueue
  /** Every claim ever granted, so that old ones are settled too. */
  readonly claims: Claim[] = []

  constructor(rules: Rules) {
    const { maxLength, maxBytes, whenFull, outcomesMs, maxDeliveries, ageing } = rules
    this.model = new NaiveQueue(rules, this.rig.clock.time)
    this.rig.configure({
      maxDeliveries,
      ageing,
      limits: { maxLength, maxBytes, whenFull, maxPayloadBytes: 100 },
      retention: { outcomesMs, maxOutcomes: 1_000 },
    })
  }

  run(command: Command): void {
    this.model.catchUp()
    command(this)
    this.model.catchUp()
    this.compare()
  }

  compare(): void {
    const { rig, model } = this
    const stats = rig.stats()
    expect(leak(stats)).toBe(0)
    expect(stats).toEqual(model.stats())
    expect(rig.claimReply(0).nextDueMs).toBe(model.nextDueMs())
    for (const id of IDS) expect([id, rig.outcome(id).state]).toEqual([id, model.outcomeState(id)])
    for (const state of ['ready', 'delayed', 'claimed'] as const) {
      const listed = now(rig.driver.list(state, LISTING)).items.map((item) => item.id)
      expect(listed.toSorted()).toEqual(idsOf(model.in(state)).toSorted())
    }
    expect(
      rig
        .dead()
        .map(({ id }) => id)
        .toSorted(),
    ).toEqual(idsOf(model.in('dead')).toSorted())
  }

  live(claim: Claim): Held | undefined {
    const one = this.model.find(claim.id)
    return one?.state === 'claimed' && one.fence === claim.fence ? one : undefined
  }

  /** Takes all that is left, and compares the order. */
  drain(): void {
    const order = this.model.paused ? [] : idsOf(this.model.order())
    expect(this.rig.claim(1_000).map((claim) => claim.id)).toEqual(order)
  }
}

type Command = (pair: Pair) => void

function idsOf(held: readonly Held[]): string[] {
  return held.map((one) => one.source.id)
}

const id = fc.constantFrom(...IDS)
/** Mostly a late claim, which is often live; sometimes an old one. */
const pick = fc.oneof({ weight: 4, arbitrary: fc.nat({ max: 4 }) }, { weight: 1, arbitrary: fc.nat({ max: 40 }) })

const newMessage: fc.Arbitrary<NewMessage> = fc
  .record({
    id,
    priority: fc.nat({ max: 3 }),
    delayMs: fc.constantFrom(0, 0, 0, -1, 5, 20),
    size: fc.nat({ max: 5 }),
    ttlMs: fc.constantFrom(undefined, undefined, undefined, 10, 30),
    whenExpired: fc.constantFrom('drop' as const, 'dead-letter' as const),
  })
  .map(({ size, ttlMs, ...rest }) => ({ ...rest, bytes: new Uint8Array(size), ...(ttlMs !== undefined && { ttlMs }) }))

const enqueue = fc.array(newMessage, { maxLength: 4 }).map(
  (batch): Command =>
    (pair) => {
      const { rig, model } = pair
      const expected = model.enqueue(batch)
      if (expected === 'full') expect(() => rig.put(...batch)).toThrow(QueueFullError)
      else expect(rig.put(...batch)).toEqual(expected)
    },
)

const claim = fc.tuple(fc.nat({ max: 4 }), fc.constantFrom(5, 15, 40), fc.boolean()).map(
  ([max, leaseMs, take]): Command =>
    (pair) => {
      const claims = pair.rig.claim(max, { leaseMs, take })
      const expected = pair.model.claim(max, leaseMs, take)
      expect(claims.map(({ id, attempt, deliveryCount }) => [id, attempt, deliveryCount])).toEqual(
        expected.map((one) => [one.source.id, one.attempt, one.deliveries]),
      )
      expected.forEach((one, index) => {
        one.fence = claims[index]?.fence ?? 0
      })
      pair.claims.push(...claims)
    },
)

const onClaim = (act: (pair: Pair, claim: Claim, one: Held | undefined) => void) =>
  pick.map(
    (from): Command =>
      (pair) => {
        const chosen = pair.claims[pair.claims.length - 1 - (from % Math.max(1, pair.claims.length))]
        if (chosen !== undefined) act(pair, chosen, pair.live(chosen))
      },
  )

const settle = fc.oneof(
  onClaim(({ rig, model }, claim, one) => expect(rig.ack(claim)).toBe(one === undefined ? 'stale' : model.ack(one))),
  onClaim(({ rig, model }, claim, one) => expect(rig.bury(claim)).toBe(one === undefined ? 'stale' : model.bury(one))),
  fc.boolean().chain((delivered) =>
    onClaim(({ rig, model }, claim, one) => {
      expect(rig.release(claim, delivered)).toBe(one === undefined ? 'stale' : model.release(one, delivered))
    }),
  ),
  fc.tuple(fc.constantFrom(0, 10), fc.boolean()).chain(([delayMs, countAttempt]) =>
    onClaim(({ rig, model }, claim, one) => {
      const expected = one === undefined ? 'stale' : model.requeue(one, delayMs, countAttempt)
      expect(rig.requeue(claim, { delayMs, countAttempt })).toBe(expected)
    }),
  ),
)

const renew = fc.constantFrom(5, 30).chain((leaseMs) =>
  onClaim(({ rig, model }, { id, token }, one) => {
    const [result] = now(rig.driver.renew([{ id, token, leaseMs }]))
    expect(result?.state).toBe(one === undefined ? 'stale' : one.cancel ? 'cancelled' : 'renewed')
    if (one !== undefined) one.leaseEnd = model.now + leaseMs
  }),
)

const cancel = id.map(
  (chosen): Command =>
    ({ rig, model }) => {
      const one = model.find(chosen)
      const answer = now(rig.driver.cancel(chosen, rig.token()))
      if (one === undefined) expect(answer).toBe('unknown')
      else if (one.state === 'ready' || one.state === 'delayed') expect(answer).toBe(model.cancel(one))
      else expect(answer).toBe(one.state === 'claimed' ? 'cancelling' : 'finished')
      if (one?.state === 'claimed') one.cancel = true
    },
)

const purge = fc.constantFrom('ready' as const, 'delayed' as const, 'claimed' as const).map(
  (state): Command =>
    ({ rig, model }) => {
      const gone = model.in(state)
      expect(now(rig.driver.purge([state], 1_000, rig.token()))).toBe(gone.length)
      for (const one of gone) model.purge(one)
    },
)

const requeueDead = id.map(
  (chosen): Command =>
    ({ rig, model }) => {
      const one = model.find(chosen)
      const isDead = one?.state === 'dead'
      const act = () => now(rig.driver.requeueDead([chosen], rig.token()))
      if (one !== undefined && isDead && !model.makeRoom(1, one.source.bytes.byteLength)) {
        expect(act).toThrow(QueueFullError)
        return
      }
      expect(act()).toEqual([isDead])
      if (one !== undefined && isDead) model.revive(one)
    },
)

const purgeDead = id.map(
  (chosen): Command =>
    ({ rig, model }) => {
      const one = model.find(chosen)
      expect(now(rig.driver.purgeDead([chosen], rig.token()))).toEqual([one?.state === 'dead'])
      if (one?.state === 'dead') model.purge(one)
    },
)

const pause = fc.constantFrom(true, false, false).map(
  (paused): Command =>
    ({ rig, model }) => {
      now(paused ? rig.driver.pause() : rig.driver.resume())
      model.paused = paused
    },
)

const pass = fc.constantFrom(1, 3, 10, 50).map(
  (ms): Command =>
    ({ rig, model }) => {
      rig.pass(ms)
      model.now += ms
    },
)

const command = fc.oneof(
  { weight: 8, arbitrary: enqueue },
  { weight: 6, arbitrary: claim },
  { weight: 8, arbitrary: settle },
  { weight: 2, arbitrary: renew },
  { weight: 2, arbitrary: cancel },
  { weight: 1, arbitrary: purge },
  { weight: 2, arbitrary: requeueDead },
  { weight: 1, arbitrary: purgeDead },
  { weight: 1, arbitrary: pause },
  { weight: 4, arbitrary: pass },
)

const rules: fc.Arbitrary<Rules> = fc.record({
  maxDeliveries: fc.constantFrom(1, 2, 5),
  ageing: fc.constantFrom(null, { stepMs: 7, cap: 65_535 }, { stepMs: 3, cap: 1 }),
  maxLength: fc.constantFrom(null, 4),
  maxBytes: fc.constantFrom(null, null, 12),
  whenFull: fc.constantFrom('reject' as const, 'dropOldest' as const),
  outcomesMs: fc.constantFrom(1, 20, 1_000),
})

describe('the memory queue', () => {
  it('is at every step what a naive queue is, and loses nothing', () => {
    fc.assert(
      fc.property(rules, fc.array(command, { minLength: 30, maxLength: 90, size: 'max' }), (chosen, commands) => {
        const pair = new Pair(chosen)
        for (const next of commands) pair.run(next)
        pair.drain()
      }),
      { numRuns: 120 },
    )
  }, 60_000)
})
