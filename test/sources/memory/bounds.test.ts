import { describe, expect, it } from 'vitest'
import { LimitError, QueueFullError, TokenExpiredError } from '../../../src/errors.js'
import { LIMITS, leak, message, now, Rig } from './harness.js'

const limited = (limits: object) => {
  const rig = new Rig()
  rig.configure({ limits: { ...LIMITS, ...limits } })
  return rig
}

describe('limits', () => {
  it('a payload that is too large is refused with its whole batch', () => {
    const rig = limited({ maxPayloadBytes: 3 })
    expect(() => rig.put('a', 'b', { id: 'c', bytes: new Uint8Array(4) })).toThrow(LimitError)
    expect(rig.stats().enqueuedTotal).toBe(0)
  })

  it('a batch that is too large is refused, naming the limit', () => {
    const rig = new Rig()
    const most = rig.backend.features.maxBatch
    const batch = Array.from({ length: most + 1 }, () => message('same'))
    expect(() => now(rig.driver.enqueue(batch, rig.token()))).toThrow(/maxBatch allows 100000/)
    const bytes = new Uint8Array(64 * 1024 * 1024)
    rig.configure({ limits: { ...LIMITS, maxPayloadBytes: 2 ** 30 } })
    const heavy = Array.from({ length: 9 }, (_, index) => message({ id: `${index}`, bytes }))
    expect(() => now(rig.driver.enqueue(heavy, rig.token()))).toThrow(/maxBatchBytes/)
    expect(rig.stats().enqueuedTotal).toBe(0)
  })

  it('reject keeps what is there and stores nothing of the batch', () => {
    const rig = limited({ maxLength: 2 })
    rig.put('a')
    expect(() => rig.put('b', 'c')).toThrow(QueueFullError)
    expect(rig.stats()).toMatchObject({ ready: 1, enqueuedTotal: 1 })
    rig.put('b')
    expect(() => rig.put('c')).toThrow(QueueFullError)
    expect(rig.drain()).toEqual(['a', 'b'])
  })

  it('counts ready, delayed and claimed, and no dead letters', () => {
    const rig = limited({ maxLength: 3 })
    rig.put('a', 'dead', { id: 'late', delayMs: 10 })
    const [, dead] = rig.claim(2)
    expect(() => rig.put('b')).toThrow(QueueFullError)
    rig.bury(dead as never)
    expect(rig.put('b')).toEqual(['enqueued'])
  })

  it('charges payload and headers, and refunds exactly', () => {
    const rig = limited({ maxBytes: 10 })
    rig.put({ id: 'a', headers: { é: 'x' } })
    expect(() => rig.put({ id: 'b', bytes: new Uint8Array(5) })).toThrow(/maxBytes/)
    rig.put({ id: 'c', bytes: new Uint8Array(4) })
    for (let round = 0; round < 50; round += 1) {
      const claim = rig.one()
      if (round % 3 === 0) rig.release(claim)
      else rig.requeue(claim, { delayMs: 1, countAttempt: false })
      rig.pass(1)
      rig.configure({ maxDeliveries: 100 })
    }
    expect(() => rig.put({ id: 'd', bytes: new Uint8Array(1) })).toThrow(QueueFullError)
    rig.drain()
    expect(rig.put({ id: 'd', bytes: new Uint8Array(10) })).toEqual(['enqueued'])
  })

  it('does not charge duplicates', () => {
    const rig = limited({ maxLength: 2 })
    rig.put('a')
    expect(rig.put('a', 'b', 'b')).toEqual(['duplicate', 'enqueued', 'duplicate'])
    expect(rig.put('a', 'b')).toEqual(['duplicate', 'duplicate'])
  })

  it('expires before it charges', () => {
    const rig = limited({ maxLength: 2 })
    rig.put({ id: 'a', ttlMs: 10 }, { id: 'b', ttlMs: 10 })
    rig.pass(10)
    expect(rig.put('c', 'd')).toEqual(['enqueued', 'enqueued'])
  })

  it('dropOldest makes room among the ready, oldest first, and counts', () => {
    const rig = limited({ maxLength: 3, whenFull: 'dropOldest' })
    rig.put({ id: 'a', priority: 9 }, 'b', 'c')
    rig.put('d', 'e')
    expect(rig.stats()).toMatchObject({ ready: 3, droppedTotal: 2 })
    expect(rig.put('a')).toEqual(['enqueued'])
    expect(rig.drain()).toEqual(['d', 'e', 'a'])
    expect(leak(rig.stats())).toBe(0)
  })

  it('dropOldest drops as many as the bytes need', () => {
    const rig = limited({ maxBytes: 9, whenFull: 'dropOldest' })
    rig.put('a', 'b', 'c')
    rig.put({ id: 'd', bytes: new Uint8Array(4) })
    expect(rig.drain()).toEqual(['c', 'd'])
  })

  it('dropOldest never drops what is claimed, delayed or in the same batch', () => {
    const rig = limited({ maxLength: 2, whenFull: 'dropOldest' })
    rig.put('a', 'b')
    const a = rig.one()
    rig.put('c')
    expect(rig.stats()).toMatchObject({ claimed: 1, ready: 1, droppedTotal: 1 })
    expect(() => rig.put('d', 'e')).toThrow(QueueFullError)
    expect(rig.stats()).toMatchObject({ claimed: 1, ready: 1, droppedTotal: 1 })
    expect(rig.ack(a)).toBe('acked')
    expect(rig.drain()).toEqual(['c'])
  })

  it('dropOldest knows that what is claimed makes no room', () => {
    const rig = limited({ maxBytes: 9, whenFull: 'dropOldest' })
    rig.put('a', 'b', 'c')
    rig.claim(2)
    expect(() => rig.put({ id: 'd', bytes: new Uint8Array(6) })).toThrow(QueueFullError)
    expect(rig.put({ id: 'd', bytes: new Uint8Array(3) })).toEqual(['enqueued'])
    expect(rig.stats()).toMatchObject({ claimed: 2, ready: 1, droppedTotal: 1 })
  })

  it('refunds what dies once, whether it is purged or comes back', () => {
    const rig = limited({ maxBytes: 6 })
    for (let round = 0; round < 5; round += 1) {
      rig.put('a', 'b')
      for (const claim of rig.claim(2)) rig.bury(claim)
      now(rig.driver.purgeDead(['a'], rig.token()))
      now(rig.driver.requeueDead(['b'], rig.token()))
      expect(() => rig.put({ id: 'c', bytes: new Uint8Array(4) })).toThrow(QueueFullError)
      expect(rig.put({ id: 'c', bytes: new Uint8Array(3) })).toEqual(['enqueued'])
      now(rig.driver.purge(['ready'], 10, rig.token()))
    }
  })

  it('lowered limits drop nothing that is there, nor for a duplicate', () => {
    const rig = new Rig()
    rig.put('a', 'b', 'c')
    rig.configure({ limits: { ...LIMITS, maxLength: 1, whenFull: 'dropOldest' } })
    expect(rig.put('b')).toEqual(['duplicate'])
    expect(rig.stats().ready).toBe(3)
  })
})

describe('time to live', () => {
  it('drops what nobody took in time, ready or delayed', () => {
    const rig = new Rig()
    rig.put({ id: 'a', ttlMs: 10 }, { id: 'b', ttlMs: 10, delayMs: 50 }, 'c')
    expect(rig.claimReply(0).nextDueMs).toBe(10)
    rig.pass(10)
    expect(rig.stats()).toMatchObject({ expiredTotal: 2, ready: 1, delayed: 0 })
    expect(rig.outcome('a')).toEqual({ state: 'expired' })
    expect(rig.drain()).toEqual(['c'])
  })

  it('makes dead letters where asked to', () => {
    const rig = new Rig()
    rig.put({ id: 'a', ttlMs: 10, whenExpired: 'dead-letter' })
    rig.pass(10)
    expect(rig.dead()).toMatchObject([{ id: 'a', attempts: 0, deliveryCount: 0 }])
    expect(rig.stats()).toMatchObject({ expiredTotal: 0, dead: 1 })
    now(rig.driver.requeueDead(['a'], rig.token()))
    expect(rig.stats().ready).toBe(1)
  })

  it('is kept when more has expired than one verb tidies up', () => {
    const rig = new Rig()
    const ids = Array.from({ length: 2_500 }, (_, index) => `m${index}`)
    rig.put(...ids.map((id) => ({ id, ttlMs: 10 })), 'fresh')
    rig.pass(10)
    expect(rig.claim(2).map((claim) => claim.id)).toEqual(['fresh'])
    expect(rig.stats()).toMatchObject({ expiredTotal: 2_500, claimed: 1 })
  })

  it('does not end a claim, but what comes back too late', () => {
    const rig = new Rig()
    rig.put({ id: 'a', ttlMs: 10 })
    const claim = rig.one({ leaseMs: 100 })
    rig.pass(50)
    expect(rig.stats().claimed).toBe(1)
    rig.release(claim)
    expect(rig.claim()).toEqual([])
    expect(rig.stats().expiredTotal).toBe(1)
  })
})

describe('ids and outcomes', () => {
  it('an id is a duplicate in every state and while its outcome is retained', () => {
    const rig = new Rig()
    rig.configure({ retention: { outcomesMs: 1_000, maxOutcomes: 10 } })
    expect(rig.put('a', 'a')).toEqual(['enqueued', 'duplicate'])
    expect(rig.put({ id: 'a', delayMs: 5 })).toEqual(['duplicate'])
    const claim = rig.one()
    expect(rig.put('a')).toEqual(['duplicate'])
    rig.ack(claim, { result: new Uint8Array([7]) })
    rig.pass(999)
    expect(rig.put('a')).toEqual(['duplicate'])
    expect(rig.outcome('a')).toEqual({ state: 'done', result: new Uint8Array([7]) })
    rig.pass(1)
    expect(rig.outcome('a')).toEqual({ state: 'unknown' })
    expect(rig.put('a')).toEqual(['enqueued'])
    expect(rig.outcome('a')).toEqual({ state: 'pending' })
    expect(rig.one()).toMatchObject({ attempt: 1, deliveryCount: 1 })
  })

  it('keeps at most maxOutcomes', () => {
    const rig = new Rig()
    rig.configure({ retention: { outcomesMs: 1_000, maxOutcomes: 2 } })
    rig.put('a', 'b', 'c')
    rig.drain()
    expect(['a', 'b', 'c'].map((id) => rig.outcome(id).state)).toEqual(['unknown', 'done', 'done'])
    rig.configure({ retention: { outcomesMs: 1_000, maxOutcomes: 0 } })
    expect(rig.put('b', 'c')).toEqual(['enqueued', 'enqueued'])
  })

  it('a message has nothing of those that are forgotten', () => {
    const rig = new Rig()
    rig.configure({ retention: { outcomesMs: 1_000, maxOutcomes: 0 } })
    rig.put({ id: 'a', key: 'k', headers: { h: 'v' }, priority: 1, ttlMs: 900 })
    rig.requeue(rig.one(), { reason: 'e' })
    const { id, token } = rig.one({ take: true, consumer: 'me' })
    now(rig.driver.renew([{ id, token, leaseMs: 1_000, progress: new Uint8Array([1]) }]))
    now(rig.driver.cancel('a', rig.token()))
    expect(rig.bury({ id, token } as never)).toBe('cancelled')
    rig.put('b')
    const fresh = now(rig.driver.list('ready', { limit: 1 })).items[0]
    expect(fresh).toEqual({
      ...message('b'),
      delayMs: undefined,
      state: 'ready',
      attempt: 1,
      deliveryCount: 0,
      enqueuedAt: rig.clock.time,
    })
    rig.pass(900)
    rig.one()
    rig.pass(1_000)
    expect(rig.bury(rig.one(), 'own')).toBe('dead')
    expect(rig.dead()[0]?.errors).toEqual([expect.stringMatching(/lapsed/), 'own'])
  })

  it('a message has no failures of one that was purged', () => {
    const rig = new Rig()
    rig.put('a')
    rig.requeue(rig.one(), { reason: 'of a' })
    now(rig.driver.purge(['ready'], 1, rig.token()))
    rig.put('b')
    rig.bury(rig.one(), 'of b')
    expect(rig.dead()[0]?.errors).toEqual(['of b'])
  })

  it('the reasons and the result of one message are not found with the next', () => {
    const rig = new Rig()
    rig.configure({ retention: { outcomesMs: 1_000, maxOutcomes: 1 } })
    rig.put('a')
    rig.ack(rig.one(), { result: new Uint8Array([1]) })
    rig.put('b')
    rig.ack(rig.one())
    rig.put('c')
    rig.ack(rig.one())
    expect(rig.outcome('c')).toEqual({ state: 'done' })
  })

  it('a purged id is free again', () => {
    const rig = new Rig()
    rig.put('a', { id: 'b', delayMs: 9 })
    expect(now(rig.driver.purge(['ready', 'delayed'], 10, rig.token()))).toBe(2)
    expect(rig.put('a', 'b')).toEqual(['enqueued', 'enqueued'])
  })
})

describe('purge', () => {
  it('goes in slices, over the states that it names', () => {
    const rig = new Rig()
    rig.put('a', 'b', 'c', { id: 'd', delayMs: 9 })
    rig.bury(rig.one())
    const claim = rig.one()
    expect(now(rig.driver.purge(['ready', 'delayed'], 1, rig.token()))).toBe(1)
    expect(now(rig.driver.purge(['ready', 'delayed'], 5, rig.token()))).toBe(1)
    expect(now(rig.driver.purge(['ready', 'delayed'], 5, rig.token()))).toBe(0)
    expect(rig.stats()).toMatchObject({ claimed: 1, dead: 1, purgedTotal: 2 })
    expect(now(rig.driver.purge(['claimed', 'dead'], 5, rig.token()))).toBe(2)
    expect(rig.ack(claim)).toBe('stale')
    expect(rig.stats()).toMatchObject({ claimed: 0, dead: 0, purgedTotal: 4 })
    expect(leak(rig.stats())).toBe(0)
  })

  it('voids a claim so that its bytes are free and its token stays stale, also for a new message of the id', () => {
    const rig = limited({ maxBytes: 3 })
    rig.put('a')
    const claim = rig.one()
    now(rig.driver.purge(['claimed'], 1, rig.token()))
    rig.put('a')
    rig.one()
    expect(rig.ack(claim)).toBe('stale')
    expect(rig.stats().claimed).toBe(1)
  })
})

describe('repeats', () => {
  it('answer what was answered first, and change nothing more', () => {
    const rig = new Rig()
    const tokens = [1, 2, 3].map((seq) => ({ session: 's', seq, floor: 1 }))
    const [enqueue, claiming, settling] = tokens as [never, never, never]
    const put = () => now(rig.driver.enqueue([message('a')], enqueue))
    const claim = () => now(rig.driver.claim({ token: claiming, max: 1, leaseMs: 9, take: false, consumer: 'c' }))
    expect([put(), put()]).toEqual([['enqueued'], ['enqueued']])
    const token = claim().claims[0]?.token ?? ''
    expect(claim().claims[0]?.token).toBe(token)
    const ack = () => now(rig.driver.settle([{ kind: 'ack', id: 'a', token }], settling))
    expect([ack(), ack(), put()]).toEqual([[{ state: 'acked' }], [{ state: 'acked' }], ['enqueued']])
    expect(rig.stats()).toMatchObject({ enqueuedTotal: 1, ackedTotal: 1 })
  })

  it('below the floor are refused, not run', () => {
    const rig = new Rig()
    now(rig.driver.enqueue([message('a')], { session: 's', seq: 1, floor: 1 }))
    now(rig.driver.enqueue([message('b')], { session: 's', seq: 3, floor: 3 }))
    expect(() => now(rig.driver.enqueue([message('c')], { session: 's', seq: 1, floor: 1 }))).toThrow(TokenExpiredError)
    expect(() => now(rig.driver.enqueue([message('c')], { session: 's', seq: 2, floor: 1 }))).toThrow(TokenExpiredError)
    expect(rig.stats().enqueuedTotal).toBe(2)
  })

  it('a request that was overtaken is run', () => {
    const rig = new Rig()
    now(rig.driver.enqueue([message('b')], { session: 's', seq: 2, floor: 1 }))
    expect(now(rig.driver.enqueue([message('a')], { session: 's', seq: 1, floor: 1 }))).toEqual(['enqueued'])
    expect(now(rig.driver.enqueue([message('a')], { session: 's', seq: 1, floor: 1 }))).toEqual(['enqueued'])
    expect(rig.drain()).toEqual(['b', 'a'])
  })

  it('of a session that was silent for two of the longest leases are refused, later requests run', () => {
    const rig = new Rig()
    const old = { session: 's', seq: 1, floor: 1 }
    now(rig.driver.enqueue([message('a')], old))
    rig.one({ leaseMs: 40_000 })
    rig.pass(80_000)
    for (let round = 0; round < 4; round += 1) rig.claim(0)
    expect(now(rig.driver.enqueue([message('a')], old))).toEqual(['enqueued'])
    rig.pass(80_001)
    for (let round = 0; round < 4; round += 1) rig.claim(0)
    expect(() => now(rig.driver.enqueue([message('x')], old))).toThrow(TokenExpiredError)
    expect(now(rig.driver.enqueue([message('x')], { session: 's', seq: 2, floor: 2 }))).toEqual(['enqueued'])
  })

  it('a refusal is final, and repeats as a refusal', () => {
    const rig = limited({ maxLength: 1 })
    rig.put('a')
    const token = { session: 's', seq: 1, floor: 1 }
    expect(() => now(rig.driver.enqueue([message('b')], token))).toThrow(QueueFullError)
    rig.drain()
    expect(() => now(rig.driver.enqueue([message('b')], token))).toThrow(QueueFullError)
  })
})
