import { describe, expect, it } from 'vitest'
import { DEFAULT_SETTINGS, DELIVERIES_PER_ATTEMPT } from '../../../src/driver.js'
import { LimitError, QueueFullError, UnsupportedError } from '../../../src/errors.js'
import { LIMITS, leak, message, now, Rig } from './harness.js'

describe('claim', () => {
  it('grants a message once, with all that was stored', () => {
    const rig = new Rig()
    const bytes = new Uint8Array([0, 255, 0])
    rig.put({ id: 'a', bytes, priority: 3, key: 'k', headers: { h: 'v' } })
    const claim = rig.one({ leaseMs: 500.5 })
    expect(claim).toMatchObject({ id: 'a', attempt: 1, deliveryCount: 1, priority: 3, key: 'k', headers: { h: 'v' } })
    expect(claim.bytes).toEqual(bytes)
    expect(claim.enqueuedAt).toBe(rig.clock.time)
    expect(claim.leaseMs).toBe(501)
    expect(claim.leaseExpiresAt).toBe(rig.clock.time + 501)
    expect(rig.claim(5)).toEqual([])
  })

  it('gives each claim its own token and a fence that rises', () => {
    const rig = new Rig()
    rig.put('a', 'b')
    const [first, second] = rig.claim(2)
    rig.release(first as never)
    const third = rig.one()
    expect(new Set([first?.token, second?.token, third.token]).size).toBe(3)
    expect(third.fence).toBeGreaterThan(second?.fence ?? 0)
  })

  it('answers stale to the token of an earlier claim of the same consumer, and leaves the new claim alone', () => {
    const rig = new Rig()
    rig.put('a')
    const first = rig.one()
    rig.pass(1_000)
    const second = rig.one()
    expect(second.attempt).toBe(2)
    expect(rig.ack(first)).toBe('stale')
    expect(rig.ack(second)).toBe('acked')
    expect(rig.ack(second)).toBe('stale')
    expect(rig.requeue(second)).toBe('stale')
  })

  it('tells how long nothing will happen by itself', () => {
    const rig = new Rig()
    expect(rig.claimReply()).toEqual({ claims: [], paused: false })
    rig.put({ id: 'late', delayMs: 5_000 })
    expect(rig.claimReply().nextDueMs).toBe(5_000)
    rig.put('a')
    expect(rig.claimReply(1, { leaseMs: 3_000 }).nextDueMs).toBe(3_000)
  })

  it('grants nothing while paused, and settles all the same', () => {
    const rig = new Rig()
    rig.put('a', 'b')
    const claim = rig.one()
    now(rig.driver.pause())
    expect(rig.claimReply()).toMatchObject({ claims: [], paused: true })
    expect(rig.ack(claim)).toBe('acked')
    rig.put('c')
    expect(rig.stats()).toMatchObject({ ready: 2, paused: true })
    now(rig.driver.resume())
    expect(rig.drain()).toEqual(['b', 'c'])
  })

  it('refuses groups and partitions, which it does not have', () => {
    const rig = new Rig()
    expect(() => rig.claim(1, { group: 'g' })).toThrow(UnsupportedError)
    expect(() => rig.claim(1, { partition: 'p' })).toThrow(UnsupportedError)
    expect(() => rig.put({ partition: 'p' })).toThrow(UnsupportedError)
    expect(rig.stats().enqueuedTotal).toBe(0)
  })
})

describe('release and requeue', () => {
  it('release gives back the old place, attempt and delivery count', () => {
    const rig = new Rig()
    rig.put('a', 'b')
    expect(rig.release(rig.one())).toBe('ready')
    expect(rig.one()).toMatchObject({ id: 'a', attempt: 1, deliveryCount: 1 })
  })

  it('release of what was shown keeps the delivery count', () => {
    const rig = new Rig()
    rig.put('a')
    rig.release(rig.one(), true)
    expect(rig.one()).toMatchObject({ attempt: 1, deliveryCount: 2 })
  })

  it('requeue without delay returns to the old place with the next attempt', () => {
    const rig = new Rig()
    rig.put('a', 'b')
    expect(rig.requeue(rig.one())).toBe('ready')
    expect(rig.one()).toMatchObject({ id: 'a', attempt: 2, deliveryCount: 2 })
  })

  it('requeue with delay arrives anew when that is over', () => {
    const rig = new Rig()
    rig.put('a')
    expect(rig.requeue(rig.one(), { delayMs: 100, countAttempt: false })).toBe('delayed')
    rig.pass(50)
    rig.put('b')
    rig.pass(100)
    rig.put('c')
    const claims = rig.claim(3)
    expect(claims.map((claim) => claim.id)).toEqual(['b', 'a', 'c'])
    expect(claims[1]).toMatchObject({ attempt: 1, deliveryCount: 2 })
  })

  it.each([1, 3])('the failure of the last of %i attempts is a dead letter', (maxDeliveries) => {
    const rig = new Rig()
    rig.configure({ maxDeliveries })
    rig.put('a')
    for (let attempt = 1; attempt < maxDeliveries; attempt += 1)
      expect(rig.requeue(rig.one(), { reason: 'e' })).toBe('ready')
    expect(rig.requeue(rig.one(), { reason: 'last' })).toBe('dead')
    expect(rig.dead()).toMatchObject([{ id: 'a', attempts: maxDeliveries, reason: 'last' }])
    expect(rig.dead()[0]?.errors).toHaveLength(maxDeliveries)
    expect(rig.outcome('a')).toEqual({ state: 'dead', reason: 'last' })
  })

  it.each(['requeue', 'release'] as const)('an endless uncounted %s ends in the dead letters', (how) => {
    const rig = new Rig()
    rig.configure({ maxDeliveries: 2 })
    rig.put('a')
    const most = 2 * DELIVERIES_PER_ATTEMPT
    for (let delivery = 1; delivery < most; delivery += 1) {
      const claim = rig.one()
      expect(how === 'requeue' ? rig.requeue(claim, { countAttempt: false }) : rig.release(claim, true)).toBe('ready')
    }
    const claim = rig.one()
    expect(how === 'requeue' ? rig.requeue(claim, { countAttempt: false }) : rig.release(claim, true)).toBe('dead')
    expect(rig.dead()).toMatchObject([{ attempts: 1, deliveryCount: most }])
  })

  it('keeps the last ten reasons', () => {
    const rig = new Rig()
    rig.configure({ maxDeliveries: 13 })
    rig.put('a')
    for (let attempt = 1; attempt <= 13; attempt += 1) rig.requeue(rig.one(), { reason: `e${attempt}` })
    expect(rig.dead()[0]?.errors).toEqual(['e4', 'e5', 'e6', 'e7', 'e8', 'e9', 'e10', 'e11', 'e12', 'e13'])
  })
})

describe('leases', () => {
  it('a lapse returns the message to its place, counted', () => {
    const rig = new Rig()
    rig.put('a', 'b')
    rig.one()
    rig.pass(999)
    expect(rig.stats()).toMatchObject({ ready: 1, claimed: 1 })
    rig.pass(1)
    expect(rig.stats()).toMatchObject({ ready: 2, claimed: 0 })
    expect(rig.one()).toMatchObject({ id: 'a', attempt: 2, deliveryCount: 2 })
  })

  it('one crash at maxDeliveries 1 is a dead letter with one attempt that names the lapse', () => {
    const rig = new Rig()
    rig.configure({ maxDeliveries: 1 })
    rig.put('a')
    rig.one()
    rig.pass(1_000)
    expect(rig.claim()).toEqual([])
    expect(rig.dead()).toMatchObject([{ attempts: 1, deliveryCount: 1, deadAt: rig.clock.time }])
    expect(rig.dead()[0]?.reason).toMatch(/lease lapsed/)
  })

  it('renewal counts from now, up to the last instant', () => {
    const rig = new Rig()
    rig.put('a')
    const { id, token } = rig.one()
    rig.pass(999)
    const renewed = { state: 'renewed', leaseMs: 700, leaseExpiresAt: rig.clock.time + 700 }
    expect(now(rig.driver.renew([{ id, token, leaseMs: 700 }]))).toEqual([renewed])
    rig.pass(699)
    expect(rig.stats().claimed).toBe(1)
    rig.pass(1)
    expect(now(rig.driver.renew([{ id, token, leaseMs: 700 }]))[0]?.state).toBe('stale')
    expect(rig.stats()).toMatchObject({ ready: 1, claimed: 0 })
  })

  it('a take that lapses is dropped and never delivered again', () => {
    const rig = new Rig()
    rig.put('a')
    rig.one({ take: true })
    rig.pass(1_000)
    expect(rig.claim()).toEqual([])
    expect(rig.stats()).toMatchObject({ droppedTotal: 1, ready: 0, claimed: 0, dead: 0 })
    expect(rig.outcome('a')).toEqual({ state: 'unknown' })
  })

  it('a take that is released can be taken again, and is no take any more when claimed', () => {
    const rig = new Rig()
    rig.put('a')
    rig.release(rig.one({ take: true }))
    rig.one({ take: false })
    rig.pass(1_000)
    expect(rig.one()).toMatchObject({ id: 'a', attempt: 2 })
  })

  it('a sweep moves at most its limit, and says when to come again', () => {
    const rig = new Rig()
    rig.put(...['a', 'b', 'c', 'd'].map((id) => ({ id, delayMs: 10 })), { id: 'late', delayMs: 50 })
    rig.pass(10)
    expect(now(rig.driver.sweep(3))).toEqual({ moved: 3, nextDueMs: 0 })
    expect(now(rig.driver.sweep(3))).toEqual({ moved: 1, nextDueMs: 40 })
    expect(rig.drain()).toEqual(['a', 'b', 'c', 'd'])
  })

  it('a claim finds all that is due, also beyond one step of maintenance', () => {
    const rig = new Rig()
    const ids = Array.from({ length: 2_500 }, (_, index) => `m${index}`)
    rig.put(...ids.map((id) => ({ id, delayMs: 10 })))
    rig.pass(10)
    expect(rig.claim(5_000).map((claim) => claim.id)).toEqual(ids)
  })
})

describe('dead letters', () => {
  it('keep the bytes, the reason and where they came from', () => {
    const rig = new Rig()
    const at = rig.clock.time
    rig.put({ id: 'a', priority: 4, key: 'k', headers: { h: 'v' } })
    rig.pass(10)
    expect(rig.bury(rig.one(), 'no')).toBe('dead')
    expect(rig.dead()).toEqual([
      {
        id: 'a',
        bytes: message('a').bytes,
        reason: 'no',
        attempts: 1,
        deliveryCount: 1,
        priority: 4,
        key: 'k',
        headers: { h: 'v' },
        enqueuedAt: at,
        deadAt: at + 10,
        errors: ['no'],
      },
    ])
  })

  it('requeue makes them new, behind what is ready, and only once', () => {
    const rig = new Rig()
    rig.put('a', 'b')
    rig.requeue(rig.one())
    rig.bury(rig.one())
    expect(now(rig.driver.requeueDead(['a', 'x', 'a'], rig.token()))).toEqual([true, false, false])
    expect(now(rig.driver.requeueDead(['a'], rig.token()))).toEqual([false])
    expect(rig.dead()).toEqual([])
    expect(rig.claim(2)).toMatchObject([{ id: 'b' }, { id: 'a', attempt: 1, deliveryCount: 1 }])
    expect(leak(rig.stats())).toBe(0)
  })

  it('requeue needs room', () => {
    const rig = new Rig()
    rig.configure({ limits: { ...LIMITS, maxLength: 1 } })
    rig.put('a')
    rig.bury(rig.one())
    rig.put('b')
    expect(() => now(rig.driver.requeueDead(['a'], rig.token()))).toThrow(QueueFullError)
    expect(rig.stats()).toMatchObject({ ready: 1, dead: 1 })
  })

  it('purge frees the id', () => {
    const rig = new Rig()
    rig.put('a')
    rig.bury(rig.one())
    expect(rig.put('a')).toEqual(['duplicate'])
    expect(now(rig.driver.purgeDead(['a', 'x'], rig.token()))).toEqual([true, false])
    expect(now(rig.driver.purgeDead(['a'], rig.token()))).toEqual([false])
    expect(rig.put('a')).toEqual(['enqueued'])
    expect(rig.stats()).toMatchObject({ purgedTotal: 1, dead: 0, ready: 1 })
  })
})

describe('forward and dead-letter elsewhere', () => {
  const pair = () => {
    const from = new Rig({ queue: 'from' })
    return { from, to: new Rig({ queue: 'to', beside: from }) }
  }
  const carry = (id: string, queue = 'to') => ({ carry: [{ queue, message: message(id) }] })

  it('moves in one step', () => {
    const { from, to } = pair()
    from.put('a')
    expect(from.ack(from.one(), { ...carry('b'), result: new Uint8Array([9]) })).toBe('forwarded')
    expect(from.stats()).toMatchObject({ claimed: 0, ackedTotal: 0, forwardedTotal: 1 })
    expect(from.outcome('a')).toEqual({ state: 'done', result: new Uint8Array([9]) })
    expect(to.drain()).toEqual(['b'])
  })

  it('a dead letter that goes elsewhere counts as forwarded and is known as dead', () => {
    const { from, to } = pair()
    from.put('a')
    expect(from.bury(from.one(), 'why', carry('b'))).toBe('dead')
    expect(from.stats()).toMatchObject({ dead: 0, forwardedTotal: 1 })
    expect(from.outcome('a')).toEqual({ state: 'dead', reason: 'why' })
    expect(to.stats().ready).toBe(1)
  })

  it('a refusal of any part leaves the claim live and every queue as it was', () => {
    const { from, to } = pair()
    const other = new Rig({ queue: 'other', beside: from })
    to.configure({ limits: { ...LIMITS, maxLength: 1 } })
    to.put('full')
    from.put('a')
    const claim = from.one()
    const carried = [...carry('b', 'other').carry, ...carry('c').carry]
    const [result] = from.settle({ kind: 'ack', id: claim.id, token: claim.token, carry: carried })
    expect(result?.state).toBe('refused')
    expect(result?.error).toBeInstanceOf(QueueFullError)
    expect(other.stats().enqueuedTotal).toBe(0)
    expect(from.stats().claimed).toBe(1)
    to.drain()
    expect(from.ack(claim, { carry: carried })).toBe('forwarded')
    expect(other.stats().ready + to.stats().ready).toBe(2)
  })

  it('a message may be forwarded within its own full queue', () => {
    const rig = new Rig()
    rig.configure({ limits: { ...LIMITS, maxLength: 1, maxBytes: 3 } })
    rig.put('a')
    expect(rig.ack(rig.one(), carry('b', 'q'))).toBe('forwarded')
    expect(rig.stats()).toMatchObject({ ready: 1, enqueuedTotal: 2, forwardedTotal: 1 })
  })

  it('commands of one call do not depend on each other', () => {
    const { from, to } = pair()
    to.configure({ limits: { ...LIMITS, maxPayloadBytes: 2 } })
    from.put('a', 'b')
    const [a, b] = from.claim(2)
    const results = from.settle(
      { kind: 'ack', id: 'a', token: a?.token ?? '', ...carry('c') },
      { kind: 'ack', id: 'b', token: b?.token ?? '' },
    )
    expect(results.map((result) => result.state)).toEqual(['refused', 'acked'])
    expect(results[0]?.error).toBeInstanceOf(LimitError)
  })
})

describe('cancel', () => {
  it('of a queued message is done at once', () => {
    const rig = new Rig()
    rig.put('a', { id: 'b', delayMs: 10 })
    expect(now(rig.driver.cancel('a', rig.token()))).toBe('cancelled')
    expect(now(rig.driver.cancel('b', rig.token()))).toBe('cancelled')
    expect(now(rig.driver.cancel('b', rig.token()))).toBe('finished')
    expect(now(rig.driver.cancel('x', rig.token()))).toBe('unknown')
    rig.pass(10)
    expect(rig.claim()).toEqual([])
    expect(rig.outcome('a')).toEqual({ state: 'cancelled' })
    expect(rig.stats().cancelledTotal).toBe(2)
  })

  it.each(['requeue', 'release', 'bury', 'lapse'] as const)('of a claimed message holds when it ends by %s', (how) => {
    const rig = new Rig()
    rig.put('a')
    const claim = rig.one()
    const hints = rig.hints()
    expect(now(rig.driver.cancel('a', rig.token()))).toBe('cancelling')
    expect(hints).toEqual([{ kind: 'cancel', id: 'a' }])
    const { id, token } = claim
    expect(now(rig.driver.renew([{ id, token, leaseMs: 1_000 }]))[0]?.state).toBe('cancelled')
    if (how === 'lapse') rig.pass(1_000)
    else expect(rig[how](claim)).toBe('cancelled')
    expect(rig.claim()).toEqual([])
    expect(rig.outcome('a')).toEqual({ state: 'cancelled' })
    expect(rig.stats()).toMatchObject({ cancelledTotal: 1, dead: 0 })
  })

  it('comes too late for one that is acked', () => {
    const rig = new Rig()
    rig.put('a')
    const claim = rig.one()
    now(rig.driver.cancel('a', rig.token()))
    expect(rig.ack(claim)).toBe('acked')
    expect(rig.outcome('a')).toEqual({ state: 'done' })
    expect(now(rig.driver.cancel('a', rig.token()))).toBe('finished')
  })
})

describe('settings', () => {
  it('are decided by the first who names them, and changed for all', () => {
    const rig = new Rig()
    const other = new Rig({ beside: rig })
    expect(now(rig.driver.settings({ maxDeliveries: 9 }))).toEqual({ ...DEFAULT_SETTINGS, maxDeliveries: 9 })
    expect(now(other.driver.settings({ maxDeliveries: 2, codec: 'x' }))).toMatchObject({ maxDeliveries: 9, codec: 'x' })
    other.configure({ maxDeliveries: 1 })
    expect(now(rig.driver.settings({}))).toEqual({ ...DEFAULT_SETTINGS, codec: 'x', maxDeliveries: 1 })
  })

  it('may still be chosen for a queue that was only forwarded to', () => {
    const from = new Rig({ queue: 'from' })
    from.put('a')
    from.ack(from.one(), { carry: [{ queue: 'to', message: message('b') }] })
    const to = new Rig({ queue: 'to', beside: from })
    expect(now(to.driver.settings({ maxDeliveries: 1 })).maxDeliveries).toBe(1)
    to.requeue(to.one())
    expect(to.dead()).toHaveLength(1)
  })
})
