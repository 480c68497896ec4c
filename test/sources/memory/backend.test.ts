import { describe, expect, it } from 'vitest'
import type { Hint, QueueDriver } from '../../../src/driver.js'
import { ClosedError, InvalidOptionError } from '../../../src/errors.js'
import { memoryBackend } from '../../../src/sources/memory/index.js'
import { message, now, Rig } from './harness.js'

const READY: Hint = { kind: 'ready' }

describe('memoryBackend', () => {
  it.each([
    [{ sheduler: undefined }, 'sheduler'],
    [{ scheduler: 5 }, 'scheduler'],
    [{ scheduler: { now: 1 } }, 'scheduler'],
    [null, 'options'],
    ['x', 'options'],
  ])('refuses %j', (options, field) => {
    expect(() => memoryBackend(options as never)).toThrow(InvalidOptionError)
    expect(() => memoryBackend(options as never)).toThrow(new RegExp(`^${field} must be`))
  })

  it('offers its scheduler, or none', () => {
    const rig = new Rig()
    expect(rig.backend.scheduler).toBe(rig.clock.scheduler)
    expect('scheduler' in memoryBackend()).toBe(false)
  })

  it('runs on epoch time without a scheduler', () => {
    const driver = memoryBackend().open('q', { close: () => Promise.resolve() })
    const before = Math.floor(performance.timeOrigin + performance.now())
    now(driver.enqueue([message('a')], { session: 's', seq: 1, floor: 1 }))
    const enqueuedAt = now(driver.list('ready', { limit: 1 })).items[0]?.enqueuedAt ?? 0
    expect(enqueuedAt).toBeGreaterThanOrEqual(before)
    expect(enqueuedAt).toBeLessThanOrEqual(performance.timeOrigin + performance.now())
  })

  it('drivers of one name share a queue, others do not', () => {
    const rig = new Rig()
    const same = new Rig({ beside: rig })
    const other = new Rig({ beside: rig, queue: 'other' })
    rig.put('a')
    expect(other.claim()).toEqual([])
    expect(same.one().id).toBe('a')
  })

  it('keeps messages and claims while no driver is open', () => {
    const rig = new Rig()
    rig.put('a', 'b')
    const claim = rig.one()
    now(rig.driver.close())
    now(rig.driver.close())
    const next = new Rig({ beside: rig })
    expect(next.stats()).toMatchObject({ ready: 1, claimed: 1 })
    expect(next.ack(claim)).toBe('acked')
  })

  it('closes all owners, while their queues still answer, then drops everything', () => {
    const rig = new Rig()
    rig.put('a')
    const claim = rig.one()
    const seen: string[] = []
    const owned: QueueDriver = rig.backend.open('q', {
      close: () => {
        seen.push(
          now(owned.settle([{ kind: 'release', id: 'a', token: claim.token, delivered: false }], rig.token()))[0]
            ?.state ?? '',
        )
        return owned.close()
      },
    })
    rig.backend.open('x', {
      close: () => {
        throw new Error('fails to close')
      },
    })
    now(rig.backend.close())
    now(rig.backend.close())
    expect(seen).toEqual(['ready'])
    expect(() => rig.stats()).toThrow(ClosedError)
  })

  it('refuses every verb after a close, of the driver or the backend', () => {
    const rig = new Rig()
    const late = () => rig.backend.open('q', { close: () => Promise.resolve() })
    const verbs: ((driver: QueueDriver) => unknown)[] = [
      (driver) => now(driver.settings({})),
      (driver) => now(driver.configure({})),
      (driver) => now(driver.enqueue([message('a')], rig.token())),
      (driver) => now(driver.claim({ token: rig.token(), max: 1, leaseMs: 1, take: false, consumer: '' })),
      (driver) => now(driver.settle([], rig.token())),
      (driver) => now(driver.renew([])),
      (driver) => now(driver.sweep(1)),
      (driver) => now(driver.stats()),
      (driver) => now(driver.list('ready', { limit: 1 })),
      (driver) => now(driver.deadLetters({ limit: 1 })),
      (driver) => now(driver.requeueDead([], rig.token())),
      (driver) => now(driver.purgeDead([], rig.token())),
      (driver) => now(driver.purge(['ready'], 1, rig.token())),
      (driver) => now(driver.pause()),
      (driver) => now(driver.resume()),
      (driver) => now(driver.cancel('a', rig.token())),
      (driver) => now(driver.outcome('a', true)),
      (driver) => {
        let error: unknown
        driver.arrivals().subscribe({ error: (reason) => (error = reason) })
        if (error !== undefined) throw error
      },
    ]
    for (const verb of verbs) expect(() => verb(rig.driver)).not.toThrow()
    now(rig.driver.close())
    for (const verb of verbs) expect(() => verb(rig.driver)).toThrow(ClosedError)
    now(rig.backend.close())
    for (const verb of verbs) expect(() => verb(late())).toThrow(ClosedError)
  })
})

describe('hints', () => {
  it('one for each verb that made something ready or due sooner, to all drivers of the queue', () => {
    const rig = new Rig()
    const hints = new Rig({ beside: rig }).hints()
    const expectHint = (count: number, act: () => unknown) => {
      hints.length = 0
      act()
      expect(hints).toEqual(Array.from({ length: count }, () => READY))
    }
    expectHint(1, () => rig.put('a', 'b', 'c', 'd'))
    expectHint(0, () => rig.put('a'))
    expectHint(1, () => rig.put({ id: 'late', delayMs: 500 }))
    expectHint(0, () => rig.put({ id: 'later', delayMs: 5_000 }))
    const claims = rig.claim(4)
    expectHint(0, () => rig.ack(claims[0] as never))
    expectHint(1, () => rig.release(claims[1] as never))
    expectHint(1, () => rig.requeue(claims[2] as never))
    expectHint(0, () => rig.bury(claims[3] as never))
    expectHint(1, () => now(rig.driver.requeueDead(['d'], rig.token())))
    expectHint(0, () => now(rig.driver.pause()))
    expectHint(1, () => now(rig.driver.resume()))
    expectHint(1, () => rig.configure({ maxDeliveries: 3 }))
    const claim = rig.one()
    expectHint(0, () => now(rig.driver.renew([{ id: claim.id, token: claim.token, leaseMs: 9_000 }])))
    expectHint(1, () => now(rig.driver.renew([{ id: claim.id, token: claim.token, leaseMs: 100 }])))
  })

  it('tells the other queue of what was carried to it', () => {
    const from = new Rig({ queue: 'from' })
    const hints = new Rig({ queue: 'to', beside: from }).hints()
    from.put('a')
    from.ack(from.one(), { carry: [{ queue: 'to', message: message('b') }] })
    expect(hints).toEqual([READY])
  })

  it.each(['ack', 'bury', 'cancel', 'expire', 'purge', 'drop', 'lapse'] as const)(
    'tells a watched outcome: %s',
    (how) => {
      const rig = new Rig()
      rig.put({ id: 'a', ttlMs: 500 }, 'unwatched')
      const hints = rig.hints()
      expect(rig.outcome('a', true)).toEqual({ state: 'pending' })
      rig.outcome('unwatched')
      if (how === 'ack' || how === 'bury') for (const claim of rig.claim(2)) rig[how](claim)
      if (how === 'cancel') now(rig.driver.cancel('a', rig.token()))
      if (how === 'purge') now(rig.driver.purge(['ready'], 10, rig.token()))
      if (how === 'drop') {
        const limits = { maxLength: 2, maxBytes: null, maxPayloadBytes: 10, whenFull: 'dropOldest' } as const
        rig.configure({ limits })
        rig.put('b')
      }
      if (how === 'lapse') rig.claim(2, { take: true })
      rig.pass(1_000)
      now(rig.driver.sweep(10))
      expect(hints.filter((hint) => hint.kind === 'outcome')).toEqual([{ kind: 'outcome', id: 'a' }])
    },
  )

  it('come when the queue is whole, so that a subscriber may act at once', () => {
    const rig = new Rig()
    const claimed: string[] = []
    rig.driver.arrivals().subscribe(() => {
      for (const claim of rig.claim(10)) {
        claimed.push(claim.id)
        if (claim.attempt === 1) rig.requeue(claim)
        else rig.ack(claim)
      }
    })
    expect(rig.put('a', 'b')).toEqual(['enqueued', 'enqueued'])
    expect(claimed.toSorted()).toEqual(['a', 'a', 'b', 'b'])
    expect(rig.stats()).toMatchObject({ ready: 0, claimed: 0, ackedTotal: 2 })
  })

  it('end with the driver', () => {
    const rig = new Rig()
    let completed = false
    rig.driver.arrivals().subscribe({ complete: () => (completed = true) })
    now(rig.driver.close())
    expect(completed).toBe(true)
  })
})

describe('listing', () => {
  const pages = (rig: Rig, state: 'ready' | 'delayed' | 'claimed', limit = 3) => {
    const ids: string[] = []
    for (let after: string | undefined, more = true; more; ) {
      const page = now(rig.driver.list(state, after === undefined ? { limit } : { limit, after }))
      expect(page.items.length).toBeLessThanOrEqual(limit)
      ids.push(...page.items.map((item) => item.id))
      after = page.next
      more = after !== undefined
    }
    return ids
  }

  it('pages through each state in order', () => {
    const rig = new Rig()
    const ids = Array.from({ length: 9 }, (_, index) => `m${index}`)
    rig.put(...ids.map((id, index) => ({ id, priority: index % 2 })))
    rig.put(...ids.map((id, index) => ({ id: `d${id}`, delayMs: 100 - index })))
    const order = ['m0', 'm2', 'm4', 'm6', 'm8', 'm1', 'm3', 'm5', 'm7']
    expect(pages(rig, 'ready')).toEqual(order)
    expect(pages(rig, 'delayed')).toEqual(ids.map((id) => `d${id}`).reverse())
    rig.claim(7)
    expect(pages(rig, 'claimed')).toEqual(order.slice(0, 7))
    expect(pages(rig, 'ready')).toEqual(order.slice(7))
  })

  it('goes on where it stopped when the last shown message is gone', () => {
    const rig = new Rig()
    rig.put('a', 'b', 'c')
    const page = now(rig.driver.list('ready', { limit: 1 }))
    rig.ack(rig.one())
    const next = now(rig.driver.list('ready', { limit: 1, after: page.next ?? '' }))
    expect(next.items.map((item) => item.id)).toEqual(['b'])
  })

  it('shows when a message is due, who has claimed it, and its progress', () => {
    const rig = new Rig()
    rig.put('a', { id: 'b', delayMs: 50 })
    const { id, token } = rig.one({ consumer: 'me' })
    now(rig.driver.renew([{ id, token, leaseMs: 500, progress: new Uint8Array([1]) }]))
    expect(now(rig.driver.list('delayed', { limit: 5 })).items).toMatchObject([{ dueAt: rig.clock.time + 50 }])
    expect(now(rig.driver.list('claimed', { limit: 5 })).items).toEqual([
      {
        id: 'a',
        state: 'claimed',
        bytes: message('a').bytes,
        attempt: 1,
        deliveryCount: 1,
        priority: 0,
        enqueuedAt: rig.clock.time,
        leaseExpiresAt: rig.clock.time + 500,
        consumer: 'me',
        progress: new Uint8Array([1]),
      },
    ])
  })

  it('pages through ten thousand dead letters', () => {
    const rig = new Rig()
    const ids = Array.from({ length: 10_000 }, (_, index) => `m${index}`)
    rig.put(...ids)
    for (const { id, token } of rig.claim(10_000)) rig.settle({ kind: 'dead-letter', id, token, reason: 'r' })
    const seen: string[] = []
    for (let page = now(rig.driver.deadLetters({ limit: 999 })); ; ) {
      seen.push(...page.items.map((item) => item.id))
      now(rig.driver.purgeDead([page.items.at(-1)?.id ?? ''], rig.token()))
      if (page.next === undefined) break
      page = now(rig.driver.deadLetters({ limit: 999, after: page.next }))
    }
    expect(seen).toEqual(ids)
  })

  it('tells the age of the message that has been ready longest', () => {
    const rig = new Rig()
    expect(rig.stats().oldestReadyAgeMs).toBe(0)
    rig.put({ id: 'old', priority: 9 })
    rig.pass(70)
    rig.put('new')
    rig.pass(30)
    expect(rig.stats().oldestReadyAgeMs).toBe(100)
  })
})
