import { type Delivery, LeaseLostError, mergeMap, pipe, type Settlement, type SourceEvent } from 'millrace'
import { marbles } from 'millrace/testing'
import { NEVER } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { promised, seenNext } from './cancelling.js'
import { at, takes } from './handlers.js'

const never = mergeMap(() => NEVER, 1)

describe('renewal', () => {
  it('keeps a claim for as long as it is handled', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('a|', undefined, { leaseMs: 60 })
      expectObservable(pipe(queue.source(), mergeMap(takes(1_000), 1))).toBe('1s (a|)')
      expectSubscriptions(queue.claimsOf('a')).toBe('^ 999ms !')
    })
  })

  it('renews a few times per lease, and not at all while nothing is held', () => {
    let renewals = 0
    marbles((helpers) => {
      const queue = helpers.testQueue('a', undefined, { leaseMs: 300 })
      pipe(queue.source(), mergeMap(takes(900), 1)).subscribe()
      at(helpers, 50_000, () => {
        renewals = queue.backend.calls.filter((verb) => verb === 'renew').length
      })
    })
    expect(renewals).toBeGreaterThanOrEqual(8)
    expect(renewals).toBeLessThanOrEqual(13)
  })

  it('one request renews all that is held', () => {
    const calls: number[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('(abc)', undefined, { leaseMs: 300 })
      pipe(queue.source(), mergeMap(takes(150), 3)).subscribe()
      at(helpers, 140, () => calls.push(queue.backend.calls.filter((verb) => verb === 'renew').length))
    })
    expect(calls).toEqual([1])
  })

  it('does not cut an extension short that is on its way', () => {
    const leftMs: number[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('a', undefined, { leaseMs: 300, latencies: { renew: 's----------r' } })
      const handler = (delivery: Delivery<string>) => {
        const claimedAt = delivery.leaseExpiresAt - 300
        // The renewal is due when a third of the lease is over.
        at(helpers, 95, () => void delivery.extend(60_000))
        at(helpers, 150, () => leftMs.push(delivery.leaseExpiresAt - claimedAt))
        return NEVER
      }
      pipe(queue.source(), mergeMap(handler, 1)).subscribe()
      at(helpers, 151, () => expect(queue.backend.calls.filter((verb) => verb === 'renew')).toHaveLength(2))
    })
    expect(leftMs).toEqual([60_095])
  })

  it('a renewal that fails is tried again in time', () => {
    marbles(({ testQueue, expectObservable, expectSubscriptions }) => {
      const queue = testQueue('a|', undefined, { leaseMs: 300, latencies: { renew: ['-#', 'r'] } })
      expectObservable(pipe(queue.source(), mergeMap(takes(1_000), 1))).toBe('1s (a|)')
      expectSubscriptions(queue.claimsOf('a')).toBe('^ 999ms !')
    })
  })
})

describe('a lease that is not renewed', () => {
  it('lapses in the store, and the next consumer gets the message as another attempt', () => {
    let seen: string[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('a', undefined, { leaseMs: 100, latencies: { renew: '-' } })
      pipe(queue.source(), never).subscribe()
      seen = seenNext(helpers, queue, 5)
      helpers.expectSubscriptions(queue.claimsOf('a')).toBe(['^ 99ms !', '100ms (^!)'])
    })
    expect(seen).toEqual(['a 2 2'])
  })

  it('is lost for its handler before it lapses in the store, and the signal says why', () => {
    const lost: unknown[] = []
    marbles(
      (helpers) => {
        const queue = helpers.testQueue('a', undefined, { leaseMs: 100, latencies: { renew: '-' } })
        const lose = (d: Delivery<string>) => {
          d.signal.addEventListener('abort', () => lost.push(helpers.scheduler.frame, d.signal.reason))
          return NEVER
        }
        pipe(queue.source(), mergeMap(lose, 1)).subscribe()
      },
      { maxFrames: 99 },
    )
    expect(lost[0]).toBe(90)
    expect(lost[1]).toBeInstanceOf(LeaseLostError)
    expect(lost[1]).toMatchObject({ why: 'expired', id: 'a' })
  })

  it('makes a late ack stale, which leaves the new claim alone', () => {
    const answers: (Settlement | boolean)[] = []
    marbles(
      (helpers) => {
        const queue = helpers.testQueue('a', undefined, { leaseMs: 100, latencies: { renew: '-' } })
        let first: Delivery<string> | undefined
        queue.source({ credit: 2 }).subscribe((d) => {
          first ??= d
        })
        at(helpers, 150, () => void first?.ack().then((settlement) => answers.push(settlement)))
        helpers.expectSubscriptions(queue.claimsOf('a')).toBe(['^ 99ms !', '100ms ^ 99ms !', '200ms ^'])
        helpers.expectObservable(queue.acks).toBe('')
      },
      { maxFrames: 240 },
    )
    expect(answers).toEqual(['stale'])
  })

  it('makes it a dead letter at the last attempt', () => {
    let dead = -1
    marbles((helpers) => {
      const queue = helpers.testQueue('a', undefined, { leaseMs: 100, maxDeliveries: 2, latencies: { renew: '-' } })
      pipe(
        queue.source(),
        mergeMap(() => NEVER, 2),
      ).subscribe()
      helpers.expectSubscriptions(queue.claimsOf('a')).toBe(['^ 99ms !', '100ms ^ 99ms !'])
      at(helpers, 300, () => {
        dead = queue.inspect().stats.dead
      })
    })
    expect(dead).toBe(1)
  })

  it('is told as an event', () => {
    const events: string[] = []
    marbles(
      (helpers) => {
        const queue = helpers.testQueue('a', undefined, { leaseMs: 100, latencies: { renew: '-' } })
        const source = queue.source()
        source.events.subscribe((event: SourceEvent) => events.push(`${helpers.scheduler.frame} ${event.type}`))
        pipe(source, never).subscribe()
      },
      { maxFrames: 95 },
    )
    expect(events).toEqual(['0 claimed', '0 delivered', '68 reconnecting', '90 lease-expired'])
  })
})

describe('maxLeaseMs', () => {
  it('ends the renewals of a wedged handler: the claim lapses and the signal aborts', () => {
    const lost: unknown[] = []
    const events: string[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('a', undefined, { leaseMs: 60 })
      const source = queue.source({ maxLeaseMs: 200 })
      source.events.subscribe((event) => events.push(event.type))
      const wedge = (d: Delivery<string>) => {
        d.signal.addEventListener('abort', () => lost.push((d.signal.reason as LeaseLostError).why))
        return promised(helpers, 90_000, 0)
      }
      const subscription = pipe(source, mergeMap(wedge, 1)).subscribe()
      at(helpers, 400, () => subscription.unsubscribe())
    })
    expect(lost).toEqual(['capped'])
    expect(events).toContain('stuck')
  })

  it('starts anew with each progress()', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('a|', undefined, { leaseMs: 60 })
      const alive = (d: Delivery<string>) => {
        for (let frame = 100; frame < 900; frame += 100) at(helpers, frame, () => d.progress(frame))
        return takes(1_000)(d)
      }
      const handled = pipe(queue.source({ maxLeaseMs: 200 }), mergeMap(alive, 1))
      helpers.expectObservable(handled).toBe('1s (a|)')
    })
  })

  it('without progress the same handler loses its claim', () => {
    const acks: string[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('a', undefined, { leaseMs: 60, maxDeliveries: 1 })
      queue.acks.subscribe((id) => acks.push(id))
      pipe(queue.source({ maxLeaseMs: 200 }), mergeMap(takes(1_000), 1)).subscribe()
    })
    expect(acks).toEqual([])
  })

  it('caps extend()', () => {
    const answers: string[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('a')
      queue.source({ maxLeaseMs: 1_000, leaseMs: 100 }).subscribe((d) => {
        void d.extend(900).then((answer) => answers.push(answer))
        void d.extend(1_100).then((answer) => answers.push(answer))
        at(helpers, 200, () => void d.ack())
      })
    })
    expect(answers.sort()).toEqual(['capped', 'extended'])
  })
})

it('a claim that is granted so late that its lease may be over is given back unseen, and claimed anew', () => {
  const out: string[] = []
  marbles((helpers) => {
    const queue = helpers.testQueue('a', undefined, {
      leaseMs: 100,
      latencies: { claim: ['s 98ms r', 'r'], renew: '-' },
    })
    const handled = pipe(
      queue.source(),
      mergeMap((d) => {
        out.push(`${helpers.scheduler.frame} ${d.id} ${d.attempt}`)
        return takes(1)(d)
      }, 1),
    )
    at(helpers, 1, () => handled.subscribe())
  })
  // Granted at 1, answered at 100: by then it is not surely ours any more. Nobody saw it, so nothing is counted.
  expect(out).toEqual(['100 a 1'])
})
