import {
  BackendError,
  BackendUnavailableError,
  collect,
  type Delivery,
  mergeMap,
  pipe,
  process as settling,
} from 'millrace'
import { type MarbleHelpers, marbles, type TestQueue, type Verb } from 'millrace/testing'
import { NEVER, of } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { at, takes } from '../marbles/handlers.js'
import { revocable } from '../support/clients.js'
import { expectStats, memoryQueue, queueOn } from '../support/queues.js'
import { gate } from '../support/wait.js'

type Kind = 'drop-request' | 'drop-reply' | 'fail-request'

/** Cuts the backend off between two frames. */
function cut(
  helpers: MarbleHelpers,
  queue: TestQueue<string>,
  kind: Kind,
  from: number,
  to: number,
  verb: Verb | '*' = '*',
): void {
  at(helpers, from, () => {
    const fault = queue.backend.inject({ verb, kind, times: Number.POSITIVE_INFINITY })
    at(helpers, to - from, () => fault.remove())
  })
}

/** Subscribes, acks all it is given, and writes down each delivery and how it is told of trouble, with the frame. */
function consumed(helpers: MarbleHelpers, queue: TestQueue<string>): string[] {
  const log: string[] = []
  const note = (what: string) => log.push(`${helpers.scheduler.frame} ${what}`)
  const source = queue.source()
  source.events.subscribe(({ type }) => {
    if (/connect|lease|error|stuck/.test(type)) note(type)
  })
  source.subscribe({
    next: (delivery) => {
      note(`${delivery.id} ${delivery.attempt} ${delivery.deliveryCount}`)
      void delivery.ack()
    },
    error: (error) => note(`ended by ${error.name}`),
    complete: () => note('complete'),
  })
  return log
}

describe('a backend that cannot be reached', () => {
  it.each(['drop-request', 'drop-reply'] as const)(
    'A10 a network that swallows everything for thirty seconds is noticed, and outlived (%s)',
    (kind) => {
      let log: string[] = []
      marbles((helpers) => {
        const queue = helpers.testQueue('1s a', undefined, { leaseMs: 60_000 })
        log = consumed(helpers, queue)
        cut(helpers, queue, kind, 500, 30_500, 'claim')
      })
      expect(log).toEqual(['6000 reconnecting', '31000 reconnected', '31000 a 1 1'])
    },
  )

  it('A14 claims that fail over and over, before or after they are run, do not end the loop', () => {
    let log: string[] = []
    marbles((helpers) => {
      const claim = Array.from({ length: 12 }, () => ['-#', 's-#', 'r']).flat()
      const queue = helpers.testQueue('a 1s b 1s (cd) 1s e', undefined, { latencies: { claim } })
      log = consumed(helpers, queue)
    })
    expect(log.map((line) => line.replace(/^\d+ /, '')).filter((line) => !line.startsWith('reconnect'))).toEqual(
      ['a', 'b', 'c', 'd', 'e'].map((id) => `${id} 1 1`),
    )
  })

  it('B22 a claim that is never answered is asked again in a while, and grants what it did at first', () => {
    let log: string[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)', undefined, { latencies: { claim: ['r', 's', 'r'] } })
      log = consumed(helpers, queue)
      helpers.expectSubscriptions(queue.claimsOf('a')).toBe('^ 4999ms !')
    })
    expect(log).toEqual(['5000 reconnecting', '5000 reconnected', '5000 a 1 1', '5000 b 1 1'])
  })

  it('C7 the bound of a call is none for a wait: a source outlives a minute of silence, and an idle hour', () => {
    let log: string[] = []
    const calls: string[] = []
    marbles(
      (helpers) => {
        const queue = helpers.testQueue('1s a', undefined, { leaseMs: 120_000 })
        log = consumed(helpers, queue)
        for (const verb of ['claim', 'stats'] as const) cut(helpers, queue, 'drop-request', 500, 60_500, verb)
        at(helpers, 600, () => {
          queue.stats().then(null, (error) => {
            calls.push(`${helpers.scheduler.frame} ${error instanceof BackendUnavailableError}`)
          })
        })
        at(helpers, 3_600_000, () => void queue.enqueue('b', { id: 'b' }))
      },
      { maxFrames: 3_700_000 },
    )
    expect(calls).toEqual(['10600 true'])
    expect(log.filter((line) => !line.endsWith('connecting'))).toHaveLength(3)
    expect(log.filter((line) => /error|ended|complete/.test(line))).toEqual([])
    expect(log.slice(-1)).toEqual(['3600000 b 1 1'])
  })
})

describe('leases while the backend cannot be reached', () => {
  it('B18 a renewal that finds the store busy for a while is tried again within the lease', () => {
    const aborts: unknown[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('a|', undefined, { leaseMs: 30_000 })
      const handler = (delivery: Delivery<string>) => {
        delivery.signal.addEventListener('abort', () => aborts.push(delivery.signal.reason))
        return takes(60_000)(delivery)
      }
      helpers.expectObservable(pipe(queue.source(), mergeMap(handler, 1))).toBe('60s (a|)')
      cut(helpers, queue, 'fail-request', 9_000, 12_000, 'renew')
      at(helpers, 30_000, () => {
        const error = new BackendError('the database is locked')
        queue.backend.inject({ verb: 'renew', kind: 'fail-request', times: 2, error })
      })
      helpers.expectSubscriptions(queue.claimsOf('a')).toBe('^ 59999ms !')
    })
    expect(aborts).toEqual([])
  })

  it('C1 a network that goes dead under a claim is noticed by our own clock, before the lease can have lapsed', () => {
    const told: string[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)', undefined, { leaseMs: 10_000 })
      const source = queue.source({ credit: 2 })
      source.subscribe(({ id, signal }) => {
        signal.addEventListener('abort', () => told.push(`${helpers.scheduler.frame} ${id} ${signal.reason.why}`))
      })
      cut(helpers, queue, 'drop-request', 1, 100_001)
      helpers.expectSubscriptions(queue.claimsOf('a')).toBe('^ 9999ms !')
    })
    expect(told).toEqual(['9000 a expired', '9000 b expired'])
  })

  it('C3 a lease that lapses during an outage is told once, and the consumer goes on afterwards', () => {
    const events: string[] = []
    let acked = 0
    marbles((helpers) => {
      const queue = helpers.testQueue('(ab)', undefined, { leaseMs: 10_000 })
      const source = queue.source()
      source.events.subscribe((event) => {
        if (/lease|connect/.test(event.type)) events.push('id' in event ? `${event.type} ${event.id}` : event.type)
      })
      const handler = ({ attempt, id }: Delivery<string>) => (attempt === 1 ? NEVER : of(id))
      pipe(source, mergeMap(handler, 2)).subscribe()
      cut(helpers, queue, 'fail-request', 1, 10_500)
      at(helpers, 50_000, () => {
        acked = queue.inspect().stats.ackedTotal
      })
    })
    expect(events.filter((event) => event.startsWith('lease'))).toEqual(['lease-expired a', 'lease-expired b'])
    expect(events.filter((event) => event.startsWith('re'))).toEqual(['reconnecting', 'reconnected'])
    expect(acked).toBe(2)
  })

  it('C9 when all leases are revoked at once every handler is told, and every message comes again', async () => {
    const { backend } = memoryQueue()
    const store = revocable(backend)
    const queue = queueOn<number>(store.backend, { leaseMs: 300 })
    await queue.enqueueAll(Array.from({ length: 20 }, (_, payload) => ({ payload })))
    const all = gate()
    const reasons: unknown[] = []
    let started = 0
    const handler = async ({ signal, deliveryCount }: Delivery<number>) => {
      if (deliveryCount > 1) return
      started += 1
      if (started === 20) all.open()
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
      reasons.push(signal.reason.why)
      throw signal.reason
    }
    const ends = collect(pipe(queue.source({ until: 'idle' }), settling(handler, 20)))
    await all.promise
    await store.revokeAll()
    const outcomes = (await ends).map(({ outcome }) => outcome)
    expect(reasons).toEqual(Array.from({ length: 20 }, () => 'taken'))
    expect(outcomes.filter((outcome) => outcome === 'lost')).toHaveLength(20)
    expect(outcomes.filter((outcome) => outcome === 'acked')).toHaveLength(20)
    await expectStats(queue, { ackedTotal: 20, ready: 0, claimed: 0, dead: 0 })
  })
})
