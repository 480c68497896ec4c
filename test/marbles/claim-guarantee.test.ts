/** Each row of the table of the Claim Guarantee, for each way to cancel. */
import { getEventListeners } from 'node:events'
import { batch, CancelledError, type Delivery, mergeMap, pipe, Queue, type Settlement } from 'millrace'
import { type MarbleHelpers, marbles } from 'millrace/testing'
import { NEVER } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { Consumption, promised, seenNext, WAYS, type Way } from './cancelling.js'
import { at, takes } from './handlers.js'

const nothing = { released: 0, settledDuringGrace: 0, abandoned: 0 }

/** Runs in virtual time and gives back what the test made. */
function virtual<R>(test: (helpers: MarbleHelpers) => R): R {
  let result: R | undefined
  marbles((helpers) => {
    result = test(helpers)
  })
  return result as R
}

describe.each(WAYS)('cancelled by %s', (way: Way) => {
  it('idle: free and immediate, and the backend is not touched', () => {
    const { consumption, calls } = virtual((helpers) => {
      const queue = helpers.testQueue('--------a')
      const consumption = new Consumption(helpers, queue, way, (source) => source).cancelAt(3)
      const calls: string[][] = []
      at(helpers, 3, () => calls.push([...queue.backend.calls]))
      at(helpers, 7, () => calls.push([...queue.backend.calls]))
      return { consumption, calls }
    })
    expect(calls[0]).toEqual(calls[1])
    expect(consumption.released).toEqual(nothing)
    expect(consumption.log.at(-1)).toBe('3 cancelled')
  })

  it('idle: no timer and no listener is left when the call returns', () => {
    const left = virtual((helpers) => {
      const queue = helpers.testQueue('')
      const consumption = new Consumption(helpers, queue, way, (source) => pipe(source, mergeMap(takes(1), 2)))
      const left = { timers: -1, listeners: -1, before: -1 }
      at(helpers, 3, () => {
        left.before = getEventListeners(consumption.signal, 'abort').length
        consumption.cancel()
        left.listeners = getEventListeners(consumption.signal, 'abort').length
      })
      at(helpers, 4, () => {
        left.timers = helpers.scheduler.actions.length
      })
      return left
    })
    expect(left).toEqual({ before: 1, listeners: 0, timers: 0 })
  })

  it('idle: what comes later is for the next consumer, as good as new', () => {
    const { seen, consumption } = virtual((helpers) => {
      const queue = helpers.testQueue('---a')
      const consumption = new Consumption(helpers, queue, way, (source) => source).cancelAt(1)
      return { seen: seenNext(helpers, queue, 5), consumption }
    })
    expect(seen).toEqual(['a 1 1'])
    expect(consumption.log).not.toContain('3 out a')
  })

  it.each([
    ['before the store runs it', '----s--r', 3],
    ['after the store has run it', 's------r', 3],
    ['in the frame of the answer', 's--r', 3],
  ])('claim request in flight, %s: what is granted is released unseen', (_when, claim, frame) => {
    const { seen, consumption, ended } = virtual((helpers) => {
      const queue = helpers.testQueue('a', undefined, { latencies: { claim: [claim, ''.padEnd(1, 'r')] } })
      const consumption = new Consumption(helpers, queue, way, (source) => source).cancelAt(frame)
      const seen = seenNext(helpers, queue, 20)
      return { seen, consumption, ended: queue.claimsOf('a') }
    })
    expect(consumption.log.filter((entry) => entry.includes('out'))).toEqual([])
    expect(consumption.released).toEqual({ ...nothing, released: 1 })
    // Not before the answer is in.
    expect(consumption.log.find((entry) => entry.includes('cancelled'))).toBe(
      `${Math.max(claim.indexOf('r'), frame)} cancelled`,
    )
    expect(ended[0]?.unsubscribedFrame).toBe(claim.indexOf('r'))
    expect(seen).toEqual(['a 1 1'])
  })

  it('claim request in flight, several granted: released newest first, and the order is kept', () => {
    const { seen, order } = virtual((helpers) => {
      const queue = helpers.testQueue('(abc)', undefined, { latencies: { claim: ['s-----r', 'r'] } })
      const order: string[] = []
      queue.released.subscribe((id) => order.push(id))
      new Consumption(helpers, queue, way, (source) => pipe(source, mergeMap(takes(1), 3))).cancelAt(3)
      return { seen: seenNext(helpers, queue, 20), order }
    })
    expect(order).toEqual(['c', 'b', 'a'])
    expect(seen).toEqual(['a 1 1', 'b 1 1', 'c 1 1'])
  })

  it('claim request that is never answered: waited for until its lease has lapsed, and told of', () => {
    const { consumption, seen } = virtual((helpers) => {
      const queue = helpers.testQueue('a', undefined, {
        leaseMs: 1_000,
        latencies: { claim: ['s', 's', 's', 'r'] },
      })
      const consumption = new Consumption(helpers, queue, way, (source) => source).cancelAt(10)
      return { consumption, seen: seenNext(helpers, queue, 20_000) }
    })
    expect(consumption.released).toEqual({ ...nothing, abandoned: 1 })
    const frame = Number(consumption.log.find((entry) => entry.includes('cancelled'))?.split(' ')[0])
    expect(frame).toBeGreaterThanOrEqual(1_000)
    expect(frame).toBeLessThanOrEqual(15_010)
    expect(seen).toHaveLength(1)
  })

  it('claimed, not handed over (decoding): released, uncounted, never shown', () => {
    const { consumption, seen } = virtual((helpers) => {
      const queue = helpers.testQueue('ab')
      const slow = new Queue<string>(queue.name, { backend: queue.backend, schema: slowSchema(helpers, 4) })
      const consumption = new Consumption(helpers, slow as never, way, (source) => source).cancelAt(3)
      return { consumption, seen: seenNext(helpers, queue, 20) }
    })
    expect(consumption.log.filter((entry) => entry.includes('out'))).toEqual([])
    expect(consumption.released).toEqual({ ...nothing, released: 1 })
    expect(consumption.log).toContain('3 cancelled')
    expect(seen).toEqual(['a 1 1', 'b 1 1'])
  })

  it('claimed, not handed over (gathering a batch): released, uncounted, never shown', () => {
    const { consumption, seen } = virtual((helpers) => {
      const queue = helpers.testQueue('ab')
      const consumption = new Consumption(helpers, queue, way, (source) =>
        pipe(source, batch({ size: 3, withinMs: 9 })),
      ).cancelAt(3)
      return { consumption, seen: seenNext(helpers, queue, 20) }
    })
    expect(consumption.released).toEqual({ ...nothing, released: 2 })
    expect(seen).toEqual(['a 1 1', 'b 1 1'])
  })

  it('handler running: its signal aborts, and the reason names the phase', () => {
    const reasons = virtual((helpers) => {
      const queue = helpers.testQueue('a')
      const reasons: unknown[] = []
      new Consumption(helpers, queue, way, (source) =>
        pipe(
          source,
          mergeMap((d) => {
            d.signal.addEventListener('abort', () => reasons.push(helpers.scheduler.frame, d.signal.reason))
            return NEVER
          }, 1),
        ),
      ).cancelAt(3)
      return reasons
    })
    expect(reasons[0]).toBe(3)
    expect(reasons[1]).toBeInstanceOf(CancelledError)
    expect(reasons[1]).toMatchObject({ name: 'AbortError', phase: 'handling' })
  })

  it('handler running: a settlement within the grace is honoured', () => {
    const { consumption, acks } = virtual((helpers) => {
      const queue = helpers.testQueue('a')
      const acks: string[] = []
      queue.acks.subscribe((id) => acks.push(`${helpers.scheduler.frame} ${id}`))
      const consumption = new Consumption(
        helpers,
        queue,
        way,
        (source) =>
          pipe(
            source,
            mergeMap((d) => promised(helpers, 8, d.id), 1),
          ),
        { graceMs: 20 },
      ).cancelAt(3)
      return { consumption, acks }
    })
    expect(acks).toEqual(['8 a'])
    expect(consumption.released).toEqual({ ...nothing, settledDuringGrace: 1 })
    expect(consumption.log).toContain('8 cancelled')
  })

  it('handler running: one that ends because of the abort is released uncounted', () => {
    const { consumption, seen } = virtual((helpers) => {
      const queue = helpers.testQueue('a')
      const consumption = new Consumption(helpers, queue, way, (source) =>
        pipe(
          source,
          mergeMap((d) => untilAborted(d), 1),
        ),
      ).cancelAt(3)
      return { consumption, seen: seenNext(helpers, queue, 20) }
    })
    expect(consumption.released).toEqual({ ...nothing, released: 1 })
    expect(seen).toEqual(['a 1 2'])
  })

  it('handler running: another failure follows the normal policy', () => {
    const { consumption, seen } = virtual((helpers) => {
      const queue = helpers.testQueue('a')
      const consumption = new Consumption(helpers, queue, way, (source) =>
        pipe(
          source,
          mergeMap(() => promised(helpers, 8, 0, new Error('of its own')), 1),
        ),
      ).cancelAt(3)
      return { consumption, seen: seenNext(helpers, queue, 20) }
    })
    expect(consumption.released).toEqual({ ...nothing, settledDuringGrace: 1 })
    expect(seen).toEqual(['a 2 2'])
  })

  it('handler running: after the grace it is released and fenced, so that a late ack is stale', () => {
    const { consumption, seen, late } = virtual((helpers) => {
      const queue = helpers.testQueue('a')
      const late: (Settlement | boolean)[] = []
      const consumption = new Consumption(
        helpers,
        queue,
        way,
        (source) =>
          pipe(
            source,
            mergeMap((d) => {
              at(helpers, 15, () => void d.ack().then((settlement) => late.push(d.settled, settlement)))
              return promised(helpers, 90, d.id)
            }, 1),
          ),
        { graceMs: 10 },
      ).cancelAt(3)
      return { consumption, seen: seenNext(helpers, queue, 20), late }
    })
    expect(consumption.released).toEqual({ ...nothing, released: 1 })
    expect(consumption.log).toContain('13 cancelled')
    expect(late).toEqual([true, 'stale'])
    expect(seen).toEqual(['a 1 2'])
  })

  it('handler running: the lease is renewed during the grace', () => {
    const { acks, consumption } = virtual((helpers) => {
      const queue = helpers.testQueue('a', undefined, { leaseMs: 60 })
      const acks: string[] = []
      queue.acks.subscribe((id) => acks.push(`${helpers.scheduler.frame} ${id}`))
      const consumption = new Consumption(
        helpers,
        queue,
        way,
        (source) =>
          pipe(
            source,
            mergeMap((d) => promised(helpers, 400, d.id), 1),
          ),
        { graceMs: 500 },
      ).cancelAt(3)
      return { acks, consumption }
    })
    expect(acks).toEqual(['400 a'])
    expect(consumption.released).toEqual({ ...nothing, settledDuringGrace: 1 })
  })

  it.each(['---s---r', 's------r'])('settling (%s): never cancelled, and waited for', (settle) => {
    const { consumption, acks } = virtual((helpers) => {
      const queue = helpers.testQueue('a', undefined, { latencies: { settle } })
      const acks: string[] = []
      queue.acks.subscribe((id) => acks.push(id))
      const consumption = new Consumption(helpers, queue, way, (source) =>
        pipe(source, mergeMap(takes(2), 1)),
      ).cancelAt(4)
      return { consumption, acks }
    })
    expect(acks).toEqual(['a'])
    expect(consumption.released).toEqual(nothing)
    expect(consumption.log).toContain('9 cancelled')
  })

  it('settling, the answer is lost: asked again under the same token, and applied once', () => {
    const { consumption, acks } = virtual((helpers) => {
      const queue = helpers.testQueue('a', undefined, { latencies: { settle: ['s-#', 'r'] } })
      const acks: string[] = []
      queue.acks.subscribe((id) => acks.push(id))
      const consumption = new Consumption(helpers, queue, way, (source) =>
        pipe(source, mergeMap(takes(2), 1)),
      ).cancelAt(3)
      return { consumption, acks }
    })
    expect(acks).toEqual(['a'])
    expect(consumption.released).toEqual(nothing)
  })

  it('time: cancelled within the grace and the settle bound, whatever the store does', () => {
    const { consumption } = virtual((helpers) => {
      const queue = helpers.testQueue('a', undefined, { latencies: { settle: '-' } })
      const consumption = new Consumption(
        helpers,
        queue,
        way,
        (source) =>
          pipe(
            source,
            mergeMap(() => promised(helpers, 90_000, 0), 1),
          ),
        { graceMs: 50 },
      ).cancelAt(3)
      return { consumption }
    })
    expect(consumption.released).toEqual({ ...nothing, abandoned: 1 })
    expect(consumption.log).toContain('5053 cancelled')
  })
})

it.each(WAYS)('cancelled by %s, a lease that runs out during the grace was not given back, and is told of', (way) => {
  const { consumption, seen } = virtual((helpers) => {
    const queue = helpers.testQueue('a', undefined, { leaseMs: 50, latencies: { renew: '-' } })
    const consumption = new Consumption(helpers, queue, way, (source) =>
      pipe(
        source,
        mergeMap(() => promised(helpers, 900, 0), 1),
      ),
    ).cancelAt(10)
    return { consumption, seen: seenNext(helpers, queue, 60) }
  })
  expect(seen).toEqual(['a 2 2'])
  expect(consumption.released).toEqual({ ...nothing, abandoned: 1 })
})

it('process death: the claim lapses with its lease, and both counts rise by one', () => {
  const { seen, windows } = virtual((helpers) => {
    const queue = helpers.testQueue('a', undefined, { leaseMs: 100, latencies: { renew: '-' } })
    pipe(
      queue.source(),
      mergeMap(() => NEVER, 1),
    ).subscribe()
    return { seen: seenNext(helpers, queue, 10), windows: queue.claimsOf('a') }
  })
  expect(seen).toEqual(['a 2 2'])
  expect(windows[0]).toMatchObject({ subscribedFrame: 0, unsubscribedFrame: 100 })
})

function untilAborted(delivery: Delivery<unknown>): PromiseLike<never> {
  return {
    // biome-ignore lint/suspicious/noThenProperty: native promises make no progress in virtual time
    then: (_onValue, onError) => {
      delivery.signal.addEventListener('abort', () => onError?.(delivery.signal.reason))
      return undefined as never
    },
  }
}

function slowSchema(helpers: MarbleHelpers, frames: number) {
  const validate = (value: unknown) => promised(helpers, frames, { value: value as string }) as never
  return { '~standard': { version: 1 as const, vendor: 'test', validate } }
}
