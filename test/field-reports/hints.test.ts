import { getEventListeners } from 'node:events'
import { BackendError, type BackendOwner, BackendUnavailableError, Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { faultyBackend, type MarbleHelpers, marbles } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { type Hinted, hinted } from '../../src/testing/conformance/hinted.js'
import { at } from '../marbles/handlers.js'
import { queueOn } from '../support/queues.js'
import { turn } from '../support/wait.js'

/** How long a message may wait for the slow poll, which stands in for hints that do not come. */
const POLL_MS = 2_000

/** A source in virtual time on a backend whose hints are in our hand, and `<payload> <attempt>` of all it delivers, acked at once. */
function listening(helpers: MarbleHelpers, hints: Hinted) {
  const queue = new Queue<string>('hints', { backend: hints.backend })
  const seen: { readonly what: string; readonly frame: number }[] = []
  queue.source().subscribe((delivery) => {
    seen.push({ what: `${delivery.payload} ${delivery.attempt}`, frame: helpers.scheduler.frame })
    void delivery.ack()
  })
  const enqueueAt = (frame: number, payload: string) => at(helpers, frame, () => void queue.enqueue(payload))
  return { seen, enqueueAt }
}

function virtual({ scheduler }: MarbleHelpers, features?: { readonly exactHints: boolean }): Hinted {
  return hinted(faultyBackend(memoryBackend({ scheduler })), features)
}

describe('hints that do not come', () => {
  it('A26 hints that are cut off without a word cost a poll, and once they are back nothing waits for one', () => {
    let seen: readonly { readonly what: string; readonly frame: number }[] = []
    let opened = 0
    marbles((helpers) => {
      const hints = virtual(helpers, { exactHints: false })
      const { seen: delivered, enqueueAt } = listening(helpers, hints)
      seen = delivered
      at(helpers, 100, () => hints.mute(true))
      enqueueAt(1_000, 'unhinted')
      at(helpers, 10_000, () => hints.end(new BackendUnavailableError('the connection was half open')))
      at(helpers, 10_001, () => hints.mute(false))
      enqueueAt(10_100, 'in the gap')
      enqueueAt(20_500, 'hinted')
      at(helpers, 90_000, () => {
        opened = hints.opened
      })
    })
    expect(seen.map(({ what }) => what)).toEqual(['unhinted 1', 'in the gap 1', 'hinted 1'])
    const [unhinted = Number.NaN, gap = Number.NaN, late] = seen.map(({ frame }) => frame)
    expect(unhinted).toBeLessThanOrEqual(1_000 + POLL_MS)
    expect(gap).toBeLessThanOrEqual(10_100 + POLL_MS)
    expect(late).toBe(20_500)
    expect(opened).toBe(2)
  })

  it('C11 hints that break off again and again leave nothing out, and bring nothing twice', () => {
    const expected = Array.from({ length: 60 }, (_, index) => `${index} 1`)
    let seen: readonly { readonly what: string; readonly frame: number }[] = []
    const live: number[] = []
    marbles((helpers) => {
      const hints = virtual(helpers)
      const { seen: delivered, enqueueAt } = listening(helpers, hints)
      seen = delivered
      for (let index = 0; index < 60; index += 1) enqueueAt(100 + index * 300, String(index))
      for (let frame = 50; frame < 20_000; frame += 700)
        at(helpers, frame, () => hints.end(new BackendError('the revision was compacted')))
      at(helpers, 90_000, () => live.push(hints.live))
    })
    expect(seen.map(({ what }) => what)).toEqual(expected)
    expect(seen.filter(({ frame }, index) => frame > 100 + index * 300 + POLL_MS)).toEqual([])
    expect(live).toEqual([1])
  })

  it('C13 hints that are refused after a long rest are asked for until they come', () => {
    let seen: readonly { readonly what: string; readonly frame: number }[] = []
    let opened = 0
    marbles((helpers) => {
      const hints = virtual(helpers)
      const { seen: delivered, enqueueAt } = listening(helpers, hints)
      seen = delivered
      const expired = new BackendError('Unauthenticated: the token has expired')
      at(helpers, 60_000, () => {
        hints.refuse(3, expired)
        hints.end(expired)
      })
      enqueueAt(60_500, 'meanwhile')
      enqueueAt(75_300, 'afterwards')
      at(helpers, 90_000, () => {
        opened = hints.opened
      })
    })
    expect(seen.map(({ what }) => what)).toEqual(['meanwhile 1', 'afterwards 1'])
    expect(seen[0]?.frame).toBeLessThanOrEqual(60_500 + POLL_MS)
    expect(seen[1]?.frame).toBe(75_300)
    expect(opened).toBe(1 + 3 + 1)
  })

  it('C15 a thousand waits that are aborted leave no stream of hints open, and share the one that is', async () => {
    const hints = hinted(faultyBackend(memoryBackend()))
    const queue = queueOn(faultyBackend(hints.backend))
    const stop = new AbortController()
    const ends: unknown[] = []
    const round = async (index: number) => {
      const own = new AbortController()
      const subscription = queue.source({ signal: own.signal }).subscribe({ error: (error) => ends.push(error.name) })
      if (index % 2 === 0) await turn()
      if (index % 3 === 0) own.abort()
      else subscription.unsubscribe()
      return getEventListeners(own.signal, 'abort').length
    }
    for (let index = 0; index < 1_000; index += 1) {
      expect(await round(index)).toBe(0)
      expect(hints.live).toBe(0)
    }
    expect(ends).toEqual(Array.from({ length: 334 }, () => 'AbortError'))
    const parked = queue.receive({ signal: stop.signal })
    await turn()
    const before = hints.opened
    for (let index = 0; index < 1_000; index += 1) await round(index)
    expect(hints.opened).toBe(before)
    expect(hints.live).toBe(1)
    stop.abort()
    await expect(parked).rejects.toMatchObject({ name: 'AbortError' })
    expect(hints.live).toBe(0)
  })

  it('C15 one look at an outcome neither listens nor asks to be told', async () => {
    const looks: boolean[] = []
    const backend = faultyBackend(memoryBackend())
    const watched = {
      ...backend,
      open: (queue: string, owner: BackendOwner) => {
        const driver = backend.open(queue, owner)
        const outcome: typeof driver.outcome = (id, watch) => {
          looks.push(watch)
          return driver.outcome(id, watch)
        }
        return { ...driver, outcome }
      },
    }
    const hints = hinted(watched)
    const queue = new Queue<string>('looks', { backend: hints.backend })
    await queue.enqueue('x', { id: 'x' })
    expect(await queue.outcome('x', { timeoutMs: 0 })).toEqual({ state: 'pending' })
    expect([looks, hints.opened]).toEqual([[false], 0])
    expect(await queue.outcome('x', { timeoutMs: 1 })).toEqual({ state: 'pending' })
    expect([looks.at(-1), hints.opened]).toEqual([true, 1])
    await queue.close()
  })
})
