/** The sweep finds what it is there to find. */
import { mergeMap, pipe, type QueueStats } from 'millrace'
import { type CancelSweep, cancelSweep } from 'millrace/testing'
import { finalize, NEVER, of } from 'rxjs'
import { describe, expect, it } from 'vitest'
import type { StoredMessage } from '../../src/driver.js'
import { type Findings, verify } from '../../src/testing/sweep-checks.js'
import { takes } from '../marbles/handlers.js'

const none = { released: 0, settledDuringGrace: 0, abandoned: 0 }

function stats(changes: Partial<QueueStats> = {}): QueueStats {
  const counts = { ready: 2, delayed: 0, claimed: 0, dead: 0, enqueuedTotal: 2, ackedTotal: 0, forwardedTotal: 0 }
  const gone = { purgedTotal: 0, expiredTotal: 0, cancelledTotal: 0, droppedTotal: 0 }
  return { ...counts, ...gone, oldestReadyAgeMs: 0, paused: false, ...changes }
}

function message(id: string, changes: Partial<StoredMessage> = {}): StoredMessage {
  return {
    id,
    state: 'ready',
    bytes: new Uint8Array(),
    attempt: 1,
    deliveryCount: 0,
    priority: 0,
    enqueuedAt: 0,
    ...changes,
  }
}

const messages = [message('a'), message('b')]
const good: Findings = {
  acks: [],
  requeues: [],
  laterCalls: [],
  released: none,
  atRelease: { stats: stats(), messages },
  end: { stats: stats(), messages },
  timersLeft: 0,
}
const sweep = { arrivals: 'ab', frames: 1, scenario: (source) => source } satisfies CancelSweep<string>

function check(changes: Partial<Findings>, way: 'stop' | 'return' = 'stop', more: Partial<CancelSweep<string>> = {}) {
  return () => verify({ ...good, ...changes }, { ...sweep, ...more }, way, 'cancelled')
}

describe('what must hold after a cancel', () => {
  it('all is well', () => {
    expect(check({})).not.toThrow()
  })

  const end = (...list: StoredMessage[]) => ({ end: { stats: stats(), messages: list } })
  it.each<[string, Partial<Findings>]>([
    ['nothing is abandoned', { released: { ...none, abandoned: 1 } }],
    ['no claim is left', { atRelease: { stats: stats({ ready: 1, claimed: 1 }), messages } }],
    ['messages are conserved', { end: { stats: stats({ ready: 1 }), messages } }],
    ['the driver is left alone', { laterCalls: ['renew'] }],
    ['no timer is left', { timersLeft: 1 }],
    ['each message is acked once', { acks: ['a', 'a'] }],
    ['no attempt of a is counted', end(message('a', { attempt: 2 }))],
    ['message a is acked or as good as new', { ...end(message('a', { attempt: 2 })), requeues: ['a'] }],
    ['message a is acked or as good as new', end(message('a', { state: 'delayed' }))],
    ['nothing is dead', { end: { stats: stats({ ready: 1, dead: 1 }), messages } }],
    ['what is back is in its old order', end(message('b'), message('a'))],
  ])('%s', (what, changes) => {
    expect(check(changes)).toThrow(what)
  })

  it('the cancel comes to its end', () => {
    const { released: _, ...pending } = good
    expect(() => verify(pending, sweep, 'stop', 'cancelled')).toThrow('the cancel comes to its end')
  })

  it('what a returned loop had seen counts as an attempt', () => {
    const seen = { ...end(message('a', { attempt: 2 })), requeues: ['a'] }
    expect(check(seen, 'return')).not.toThrow()
    expect(check({ ...seen, requeues: ['a', 'a'] }, 'return')).toThrow('message a')
  })

  it('what the scenario itself fails may be left otherwise', () => {
    const failed = { ...end(message('a', { attempt: 2, state: 'delayed' })), requeues: ['a'] }
    expect(check(failed, 'stop', { mayFail: (id) => id === 'a' })).not.toThrow()
    expect(check(failed, 'stop', { mayFail: (id) => id === 'b' })).toThrow('message a')
  })
})

describe('a sweep', () => {
  it('names the way and the instant at which a cancel cost something', () => {
    const costly = () =>
      cancelSweep({
        arrivals: 'a',
        scenario: (source) =>
          pipe(
            source,
            mergeMap((d) => NEVER.pipe(finalize(() => void d.requeue())), 1),
          ),
        frames: 4,
      })
    expect(costly).toThrow(
      /message a is acked or as good as new: not when cancelled by stop at the end of frame 4; found/,
    )
  })

  it('tells of a store that does not confirm', () => {
    const unconfirmed = () =>
      cancelSweep({
        arrivals: 'a',
        scenario: (source) =>
          pipe(
            source,
            mergeMap(() => of(1), 1),
          ),
        options: { latencies: { settle: 's' } },
        frames: 2,
      })
    expect(unconfirmed).toThrow('nothing is abandoned')
  })

  it('tells of a timer that outlives it', () => {
    const forgetful = () =>
      cancelSweep({
        arrivals: '',
        scenario: (source, { scheduler }) => {
          scheduler.schedule(() => {}, 2_000_000)
          return source
        },
        frames: 1,
      })
    expect(forgetful).toThrow('no timer is left')
  })

  it('tries each frame twice and each step twice, in each way', () => {
    const { runs, steps } = cancelSweep({
      arrivals: 'a',
      scenario: (source) => pipe(source, mergeMap(takes(1), 1)),
      frames: 3,
    })
    expect(steps).toBeGreaterThanOrEqual(4)
    expect(runs).toBe(4 * (2 * 4 + 2 * steps))
  })

  it('cancels a sink by its signal and by stop()', () => {
    const aborted: boolean[] = []
    const { runs, steps } = cancelSweep({
      arrivals: 'a',
      scenario: (source, { signal }) => {
        signal.addEventListener('abort', () => aborted.push(true))
        return new Promise<void>((resolve) => {
          pipe(source, mergeMap(takes(1), 1)).subscribe({ complete: resolve, error: () => resolve() })
        })
      },
      frames: 2,
    })
    expect(runs).toBe(2 * (2 * 3 + 2 * steps))
    expect(aborted).toHaveLength(runs / 2)
  })
})
