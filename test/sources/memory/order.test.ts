import { describe, expect, it } from 'vitest'
import { now, Rig } from './harness.js'

describe('order', () => {
  it('is priority, then arrival, and a batch keeps its own', () => {
    const rig = new Rig()
    rig.put({ id: 'low', priority: 9 }, { id: 'a', priority: 1 }, { id: 'b', priority: 1 })
    rig.put({ id: 'top', priority: 0 }, { id: 'c', priority: 1 })
    expect(rig.drain()).toEqual(['top', 'a', 'b', 'c', 'low'])
  })

  it('a delayed message arrives at its due instant, however late it is promoted', () => {
    const rig = new Rig()
    rig.put({ id: 'late', delayMs: 100 }, { id: 'sooner', delayMs: 50 })
    rig.pass(99)
    rig.put('before')
    expect(rig.stats()).toMatchObject({ ready: 2, delayed: 1 })
    rig.pass(51)
    rig.put('after')
    expect(rig.drain()).toEqual(['sooner', 'before', 'late', 'after'])
  })

  it('zero and negative delays are now', () => {
    const rig = new Rig()
    rig.put({ id: 'a', delayMs: -5 }, { id: 'b', delayMs: 0 })
    expect(rig.drain()).toEqual(['a', 'b'])
  })

  it('fractions of a millisecond never make a delay or a lease shorter', () => {
    const rig = new Rig()
    rig.clock.time = 1_000_000.9
    rig.put({ id: 'a', delayMs: 10 })
    const reply = rig.claimReply()
    expect(reply.nextDueMs).toBeGreaterThanOrEqual(10)
    rig.clock.time = 1_000_010.8
    expect(rig.claim()).toEqual([])
    rig.clock.time = 1_000_011
    const claim = rig.one({ leaseMs: 10 })
    expect(Number.isInteger(claim.leaseExpiresAt) && Number.isInteger(claim.enqueuedAt)).toBe(true)
  })

  it('holds while a clock goes backwards', () => {
    const rig = new Rig()
    rig.put('a')
    rig.pass(-3_600_000)
    rig.put('b')
    rig.pass(3_700_000)
    rig.put('c')
    expect(rig.drain()).toEqual(['a', 'b', 'c'])
  })

  it('many priorities interleave', () => {
    const rig = new Rig()
    const expected: string[][] = []
    for (let round = 0; round < 20; round += 1) {
      for (let priority = 0; priority < 50; priority += 1) {
        const id = `${priority}-${round}`
        rig.put({ id, priority })
        expected[priority] = [...(expected[priority] ?? []), id]
      }
    }
    expect(rig.drain()).toEqual(expected.flat())
  })
})

describe('ageing', () => {
  const ageing = (cap = 65_535) => {
    const rig = new Rig()
    now(rig.driver.settings({ ageing: { stepMs: 100, cap } }))
    return rig
  }

  it('waiting makes up for priority, step by step', () => {
    const rig = ageing()
    rig.put({ id: 'low', priority: 5 })
    rig.pass(499)
    rig.put({ id: 'overtakes', priority: 0 })
    rig.pass(2)
    rig.put({ id: 'does not', priority: 0 })
    expect(rig.drain()).toEqual(['overtakes', 'low', 'does not'])
  })

  it('serves a low message under a steady load of high ones within the bound', () => {
    const rig = ageing()
    rig.put({ id: 'low', priority: 3 })
    const served: string[] = []
    for (let round = 0; round < 10; round += 1) {
      rig.put({ id: `h${round}`, priority: 0 })
      served.push(rig.one().id)
      rig.pass(90)
    }
    expect(served).toContain('low')
    expect(served.indexOf('low')).toBe(4)
  })

  it('keeps the age of what is returned, and starts anew after a delay', () => {
    const rig = ageing()
    rig.put({ id: 'low', priority: 1 })
    const claim = rig.one()
    rig.pass(200)
    rig.put({ id: 'high', priority: 0 })
    rig.requeue(claim)
    const again = rig.one()
    expect(again.id).toBe('low')
    rig.requeue(again, { delayMs: 1 })
    rig.pass(1)
    expect(rig.drain()).toEqual(['high', 'low'])
  })

  it('leaves priorities above the cap strict, behind all others', () => {
    const rig = ageing(2)
    rig.put({ id: 'strict 4', priority: 4 }, { id: 'strict 3', priority: 3 }, { id: 'ages', priority: 2 })
    rig.pass(1_000_000)
    rig.put({ id: 'new', priority: 0 })
    expect(rig.drain()).toEqual(['ages', 'new', 'strict 3', 'strict 4'])
  })

  it('can be switched on and off under waiting messages', () => {
    const rig = new Rig()
    rig.put({ id: 'low', priority: 1 })
    rig.pass(1_000)
    rig.put({ id: 'high', priority: 0 }, { id: 'high 2', priority: 0 })
    expect(rig.one().id).toBe('high')
    rig.configure({ ageing: { stepMs: 100, cap: 65_535 } })
    expect(rig.one().id).toBe('low')
    rig.configure({ ageing: null })
    rig.put({ id: 'top', priority: 0 })
    expect(rig.drain()).toEqual(['high 2', 'top'])
  })
})
