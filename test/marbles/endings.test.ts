import { ClosedError, mergeMap, pipe } from 'millrace'
import { marbles } from 'millrace/testing'
import { NEVER } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { Consumption } from './cancelling.js'
import { at, takes } from './handlers.js'

describe("until: 'empty'", () => {
  it('completes at once on an empty queue', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('')
      expectObservable(pipe(queue.source({ until: 'empty' }), mergeMap(takes(1), 1))).toBe('|')
    })
  })

  it('completes when the last of its own is settled', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)')
      const handled = pipe(queue.source({ until: 'empty' }), mergeMap(takes(6), 2))
      expectObservable(handled, '-^').toBe('-------(ab|)')
    })
  })

  it('takes what arrives while it is busy', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a--b')
      expectObservable(pipe(queue.source({ until: 'empty' }), mergeMap(takes(5), 1)), '-^').toBe('------a----(b|)')
    })
  })

  it('does not wait for what is delayed', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)', { a: 'a', b: { payload: 'b', delayMs: 50 } })
      expectObservable(pipe(queue.source({ until: 'empty' }), mergeMap(takes(1), 1)), '-^').toBe('--(a|)')
    })
  })

  it('does not wait for what others have claimed', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a')
      expectObservable(
        pipe(
          queue.source(),
          mergeMap(() => NEVER, 1),
        ),
        '^--------!',
      ).toBe('')
      expectObservable(pipe(queue.source({ until: 'empty' }), mergeMap(takes(1), 1)), '--^').toBe('--|')
    })
  })

  it('a paused queue is not empty', () => {
    marbles((helpers) => {
      const queue = helpers.testQueue('a')
      at(helpers, 1, () => void queue.pause())
      at(helpers, 450, () => void queue.resume())
      const handled = pipe(queue.source({ until: 'empty' }), mergeMap(takes(1), 1))
      helpers.expectObservable(handled, '--^').toBe('451ms (a|)')
    })
  })
})

describe("until: 'idle'", () => {
  it('waits for what is delayed', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('(ab)', { a: 'a', b: { payload: 'b', delayMs: 50 } })
      expectObservable(pipe(queue.source({ until: 'idle' }), mergeMap(takes(1), 1)), '-^').toBe('--a 48ms (b|)')
    })
  })

  it('waits for what others have claimed, and takes it when it comes back', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a')
      expectObservable(
        pipe(
          queue.source(),
          mergeMap(() => NEVER, 1),
        ),
        '^----!',
      ).toBe('')
      expectObservable(pipe(queue.source({ until: 'idle' }), mergeMap(takes(2), 1)), '--^').toBe('-------(a|)')
    })
  })

  it('completes soon after others have settled the last', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('a')
      expectObservable(pipe(queue.source(), mergeMap(takes(50), 1)), '^ 99ms !').toBe('50ms a')
      expectObservable(pipe(queue.source({ until: 'idle' }), mergeMap(takes(2), 1)), '--^').toBe('202ms |')
    })
  })
})

describe('a stopped source', () => {
  it('stays stopped: a later subscription fails with a typed error', () => {
    const { log } = stopAndSubscribe()
    expect(log).toEqual(['3 complete', '5 ERR_MILLRACE_CLOSED'])
  })

  function stopAndSubscribe() {
    const log: string[] = []
    marbles((helpers) => {
      const note = (what: string) => log.push(`${helpers.scheduler.frame} ${what}`)
      const source = helpers.testQueue('').source()
      source.subscribe({ complete: () => note('complete') })
      at(helpers, 3, () => void source.stop())
      at(helpers, 5, () => source.subscribe({ error: (error: ClosedError) => note(error.code) }))
    })
    return { log }
  }

  it.each([
    ['signal', '3 error AbortError'],
    ['stop', '3 complete'],
  ] as const)('cancelled by %s its stream ends: %s', (way, end) => {
    let consumption: Consumption | undefined
    marbles((helpers) => {
      consumption = new Consumption(helpers, helpers.testQueue(''), way, (source) => source).cancelAt(3)
    })
    expect(consumption?.log).toEqual([end, '3 cancelled'])
  })

  it.each([
    ['return', ['3 done', '3 cancelled']],
    ['unsubscribe', ['3 cancelled']],
  ] as const)('cancelled by %s it says nothing more', (way, log) => {
    let consumption: Consumption | undefined
    marbles((helpers) => {
      consumption = new Consumption(helpers, helpers.testQueue(''), way, (source) => source).cancelAt(3)
    })
    expect(consumption?.log.toSorted()).toEqual([...log].toSorted())
  })

  it('an already aborted signal: an error and no I/O', () => {
    marbles(({ testQueue, expectObservable }) => {
      const queue = testQueue('')
      let error: unknown
      const source = queue.source({ signal: AbortSignal.abort() })
      source.subscribe({
        error: (reason) => {
          error = reason
        },
      })
      expect(error).toMatchObject({ name: 'AbortError' })
      expect(queue.backend.calls).toEqual([])
      expectObservable(queue.acks).toBe('')
    })
  })
})

it('queue.close() fails what comes after it', () => {
  let error: unknown
  marbles((helpers) => {
    const queue = helpers.testQueue('')
    at(helpers, 2, () => void queue.close())
    at(helpers, 4, () => {
      queue.enqueue('x').then(null, (reason) => {
        error = reason
      })
    })
  })
  expect(error).toBeInstanceOf(ClosedError)
})
