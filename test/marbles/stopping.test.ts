import { mergeMap, pipe, type Released, run, type SourceOptions, type StopBounds, type Summary } from 'millrace'
import { type MarbleHelpers, marbles } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { promised } from './cancelling.js'
import { at } from './handlers.js'

interface Stopped {
  readonly log: string[]
  readonly released?: Released
}

/** One handler of `handlerMs`, stopped at 10: when its signal aborts, when it is acked or released, when all is over. */
function stopAt10(
  handlerMs: number,
  options: SourceOptions,
  ...stops: [frame: number, bounds?: StopBounds][]
): Stopped {
  const result: { log: string[]; released?: Released } = { log: [] }
  marbles((helpers) => {
    const { log } = result
    const note = (what: string) => log.push(`${helpers.scheduler.frame} ${what}`)
    const queue = helpers.testQueue('a')
    queue.acks.subscribe(() => note('acked'))
    queue.released.subscribe(() => note('released'))
    const source = queue.source(options)
    pipe(
      source,
      mergeMap((d) => {
        d.signal.addEventListener('abort', () => note('aborted'))
        return promised(helpers, handlerMs, d.id)
      }, 1),
    ).subscribe({ next: () => note('value'), complete: () => note('complete') })
    for (const [frame, bounds] of stops) {
      at(helpers, frame, () => {
        void source.stop(bounds).then((released) => {
          result.released = released
          note('stopped')
        })
      })
    }
  })
  return result
}

describe('the three steps of a stop', () => {
  it('intake ends at once; by default there is no drain, and the grace is 10 s', () => {
    expect(stopAt10(90_000, {}, [10]).log).toEqual(['10 aborted', '10010 released', '10010 complete', '10010 stopped'])
  })

  it('a handler that ends within the drain never sees an abort', () => {
    const { log, released } = stopAt10(30, { drainMs: 50 }, [10])
    expect(log).toEqual(['30 acked', '30 value', '30 complete', '30 stopped'].toSorted(byLog(log)))
    expect(released).toEqual({ released: 0, settledDuringGrace: 1, abandoned: 0 })
  })

  it('a handler that ends within the grace is acked', () => {
    const { log, released } = stopAt10(90, { drainMs: 50, graceMs: 50 }, [10])
    expect(log[0]).toBe('60 aborted')
    expect(log).toContain('90 acked')
    expect(log).not.toContain('110 released')
    expect(released).toEqual({ released: 0, settledDuringGrace: 1, abandoned: 0 })
  })

  it('a handler that outlives both is released when they are over', () => {
    const { log, released } = stopAt10(500, { drainMs: 50, graceMs: 50 }, [10])
    expect(log).toEqual(['60 aborted', '110 released', '110 complete', '110 stopped'])
    expect(released).toEqual({ released: 1, settledDuringGrace: 0, abandoned: 0 })
  })

  it('the bounds of stop() come before those of the source', () => {
    const { log } = stopAt10(500, { drainMs: 50, graceMs: 50 }, [10, { drainMs: 5, graceMs: 7 }])
    expect(log).toEqual(['15 aborted', '22 released', '22 complete', '22 stopped'])
  })

  it('no grace at all: released and fenced at once', () => {
    const { log } = stopAt10(500, { graceMs: 0 }, [10])
    expect(log).toEqual(['10 aborted', '10 released', '10 complete', '10 stopped'])
  })

  it('a second stop with smaller bounds hastens the first', () => {
    const { log } = stopAt10(500, { drainMs: 200, graceMs: 200 }, [10], [20, { drainMs: 0, graceMs: 5 }])
    expect(log).toEqual(['20 aborted', '25 released', '25 complete', '25 stopped', '25 stopped'])
  })

  it('a second stop never slows the first', () => {
    const { log } = stopAt10(500, { graceMs: 20 }, [10], [15, { drainMs: 400, graceMs: 400 }])
    expect(log).toEqual(['10 aborted', '30 released', '30 complete', '30 stopped', '30 stopped'])
  })

  it('the ack in the frame in which the grace ends: one of the two, and never both', () => {
    const { log } = stopAt10(30, { graceMs: 20 }, [10])
    expect(log.filter((entry) => /acked|released/.test(entry))).toHaveLength(1)
  })
})

describe('the signals of run', () => {
  function runWith(
    handlerMs: number,
    options: { drainMs?: number; graceMs?: number },
    signalAt: number,
    killAt: number,
  ): { log: string[]; summary?: Summary } {
    const result: { log: string[]; summary?: Summary } = { log: [] }
    marbles((helpers: MarbleHelpers) => {
      const queue = helpers.testQueue('(ab)')
      const [stop, kill] = [new AbortController(), new AbortController()]
      const handle = mergeMap((d: { id: string }) => promised(helpers, handlerMs, d.id), 1)
      at(helpers, 1, () => {
        void run(pipe(queue.source(), handle), { ...options, signal: stop.signal, killSignal: kill.signal }).then(
          (summary) => {
            result.summary = summary
            result.log.push(`${helpers.scheduler.frame} done`)
          },
        )
      })
      at(helpers, signalAt, () => stop.abort())
      at(helpers, killAt, () => kill.abort())
    })
    return result
  }

  it('the first stops in steps', () => {
    const { log, summary } = runWith(500, { drainMs: 20, graceMs: 30 }, 10, 5_000)
    expect(log).toEqual(['60 done'])
    expect(summary).toMatchObject({ acked: 0, released: 1, abandoned: 0 })
  })

  it('the second forces', () => {
    const { log, summary } = runWith(500, { drainMs: 200, graceMs: 300 }, 10, 25)
    expect(log).toEqual(['25 done'])
    expect(summary).toMatchObject({ acked: 0, released: 1, abandoned: 0 })
  })

  it('a kill without a signal before it is a stop without drain and grace', () => {
    const { log, summary } = runWith(500, { drainMs: 200, graceMs: 300 }, 5_000, 15)
    expect(log).toEqual(['15 done'])
    expect(summary).toMatchObject({ acked: 0, released: 1 })
  })

  it('what is done in time counts', () => {
    const { log, summary } = runWith(15, { drainMs: 20 }, 10, 5_000)
    expect(log).toEqual(['16 done'])
    expect(summary).toMatchObject({ acked: 1, released: 0, settledDuringGrace: 1 })
  })
})

describe('queue.close()', () => {
  it('stops every consumer in steps, and ends their streams with a typed error', () => {
    const log: string[] = []
    marbles((helpers) => {
      const note = (what: string) => log.push(`${helpers.scheduler.frame} ${what}`)
      const queue = helpers.testQueue('a')
      queue.released.subscribe((id) => note(`released ${id}`))
      pipe(
        queue.source(),
        mergeMap(() => promised(helpers, 900, 0), 1),
      ).subscribe({ error: (error) => note(error.code) })
      at(helpers, 10, () => void queue.close({ graceMs: 20 }).then((account) => note(`closed ${account.released}`)))
    })
    expect(log).toEqual(['30 released a', '30 ERR_MILLRACE_CLOSED', '30 closed 1'])
  })

  it('twice answers the same', () => {
    const accounts: Released[] = []
    marbles((helpers) => {
      const queue = helpers.testQueue('a')
      pipe(
        queue.source(),
        mergeMap(() => promised(helpers, 900, 0), 1),
      ).subscribe({ error: () => {} })
      for (const frame of [10, 12, 500]) {
        at(helpers, frame, () => void queue.close({ graceMs: 20 }).then((account) => accounts.push(account)))
      }
    })
    expect(accounts).toEqual(Array(3).fill({ released: 1, settledDuringGrace: 0, abandoned: 0 }))
  })
})

/** Within one frame the order of what is told is nobody's promise. */
function byLog(log: readonly string[]): (a: string, b: string) => number {
  return (a, b) => log.indexOf(a) - log.indexOf(b)
}
