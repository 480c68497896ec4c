import {
  batch,
  collect,
  concatMap,
  consume,
  filter,
  forEach,
  mapPayload,
  mergeMap,
  pipe,
  Queue,
  retryInPlace,
  retryLater,
  run,
  toQueue,
} from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { cancelSweep, type Latencies, type MarbleHelpers, type TestQueue } from 'millrace/testing'
import { delay, map, NEVER, of, mergeMap as rxMergeMap, throwError } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { promised } from './cancelling.js'
import { failsAfter, takes } from './handlers.js'

/** How long the store takes: not at all, on the way there, on the way back, both. */
const LATENCIES: [string, Latencies][] = [
  ['at once', {}],
  ['late requests', { claim: { request: 2 }, settle: { request: 2 } }],
  ['late replies', { claim: { reply: 2 }, settle: { reply: 2 } }],
  ['late both ways', { claim: { request: 1, reply: 2 }, settle: { request: 2, reply: 1 } }],
]

describe.each(LATENCIES)('a cancel at any instant loses nothing when the store answers %s', (_name, latencies) => {
  const options = { latencies }

  it('source alone', () => {
    cancelSweep({ arrivals: 'ab--c', scenario: (source) => source, frames: 12, options })
  })

  it.each([1, 2, 3])('mergeMap with %i lanes', (lanes) => {
    const { runs } = cancelSweep({
      arrivals: 'ab-(cde)',
      scenario: (source) =>
        pipe(
          source,
          mergeMap((d) => of(d.payload).pipe(delay(2)), lanes),
        ),
      frames: 16,
      options,
    })
    expect(runs).toBeGreaterThan(68)
  })

  it('mergeMap with eight lanes, and two claims on their way', () => {
    const { runs } = cancelSweep({
      arrivals: '(abcdefghijkl)-(mn)-o-(pqrstuvwx)',
      scenario: (source) =>
        pipe(
          source,
          mergeMap((d) => of(d.payload).pipe(delay(d.payload < 'e' ? 1 : 2)), 8),
        ),
      frames: 16,
      options: { ...options, pipelined: true },
    })
    expect(runs).toBeGreaterThan(68)
  })

  it('handlers that settle at once', () => {
    cancelSweep({
      arrivals: '(abc)-d',
      scenario: (source) =>
        pipe(
          source,
          concatMap((d) => d.payload),
        ),
      frames: 10,
      options,
    })
  })

  it('handlers that never end', () => {
    cancelSweep({
      arrivals: 'ab',
      scenario: (source) =>
        pipe(
          source,
          mergeMap(() => NEVER, 2),
        ),
      frames: 6,
      options,
    })
  })

  it('batch and mergeMap', () => {
    cancelSweep({
      arrivals: 'ab-c-(de)',
      scenario: (source) =>
        pipe(
          source,
          batch({ size: 2, withinMs: 3 }),
          mergeMap((ds) => of(ds.length).pipe(delay(2)), 2),
        ),
      frames: 16,
      options,
    })
  })

  it('mapPayload and filter', () => {
    cancelSweep({
      arrivals: 'abcd',
      scenario: (source) =>
        pipe(
          source,
          filter((d) => d.payload !== 'b', { otherwise: 'ack' }),
          mapPayload((text) => text.toUpperCase()),
          mergeMap((d) => of(d.payload).pipe(delay(1)), 2),
        ),
      frames: 12,
      options,
    })
  })

  it('retryInPlace and retryLater', () => {
    const runs = new Map<string, number>()
    cancelSweep({
      arrivals: 'ab',
      scenario: (source) =>
        pipe(
          source,
          retryLater(() => 3),
          retryInPlace({ times: 1, baseMs: 2, jitter: 0 }),
          mergeMap((d) => {
            const run = (runs.get(d.id) ?? 0) + 1
            runs.set(d.id, run)
            return run % 4 === 0 ? of(d.payload).pipe(delay(1)) : throwError(() => new Error('no'))
          }, 2),
        ),
      frames: 20,
      options,
      mayFail: () => true,
    })
  })

  it('operators of RxJS behind the source', () => {
    cancelSweep({
      arrivals: 'ab-c',
      scenario: (source) =>
        pipe(
          source,
          map((d) => d),
          rxMergeMap((d) => of(d).pipe(delay(2)), 2),
        ),
      frames: 14,
      options,
    })
  })

  it('a delivery that is held for a while before it is acked by hand', () => {
    cancelSweep({
      arrivals: 'ab-c',
      scenario: (source) => source,
      handle: (d, helpers) => promised(helpers, 3, undefined).then(() => d.ack()),
      frames: 14,
      options,
    })
  })

  it('retryLater: a failure of its own counts, a cancel does not', () => {
    const { runs } = cancelSweep({
      arrivals: 'ab',
      scenario: (source) =>
        pipe(
          source,
          retryLater(() => 3),
          mergeMap((d) => (d.attempt < 2 ? failsAfter(1)(d) : takes(2)(d)), 2),
        ),
      frames: 16,
      options,
      mayFail: () => true,
    })
    expect(runs).toBeGreaterThan(100)
  })

  it('autoAck: taken at the hand-over, or released', () => {
    cancelSweep({
      arrivals: 'ab-(cd)',
      scenario: (source) => source,
      source: { autoAck: true },
      frames: 12,
      options,
    })
  })

  it('a schema that takes its time', () => {
    let clock: MarbleHelpers | undefined
    const validate = (value: unknown) => {
      const checked = { value: value as string }
      return (clock ? promised(clock, 2, checked) : checked) as never
    }
    cancelSweep({
      arrivals: 'ab-c',
      scenario: (source, helpers) => {
        clock = helpers
        return pipe(source, mergeMap(takes(1), 2))
      },
      frames: 16,
      options: { ...options, schema: { '~standard': { version: 1, vendor: 'test', validate } } },
    })
  })

  it('run', () => {
    const { runs, steps } = cancelSweep({
      arrivals: 'ab-(cd)',
      scenario: (source, { signal }) => run(pipe(source, mergeMap(takes(2), 2)), { signal, graceMs: 20 }),
      frames: 14,
      options,
    })
    expect(runs).toBe(2 * (2 * 15 + 2 * steps))
  })

  it('forEach and collect', () => {
    cancelSweep({
      arrivals: 'ab-(cd)',
      scenario: (source, { signal }) => collect(pipe(source, mergeMap(takes(2), 2)), { signal }),
      frames: 14,
      options,
    })
    cancelSweep({
      arrivals: 'ab-(cd)',
      scenario: (source, helpers) =>
        forEach(source, (d) => promised(helpers, 2, undefined).then(() => d.ack()), { signal: helpers.signal }),
      frames: 14,
      options,
    })
  })

  it('consume', () => {
    cancelSweep({
      arrivals: 'ab-(cd)',
      scenario: (source, helpers) => consume(source, () => promised(helpers, 2, undefined), { signal: helpers.signal }),
      frames: 14,
      options,
    })
  })

  it('toQueue, on one backend', () => {
    let store: TestQueue<string> | undefined
    cancelSweep({
      arrivals: 'ab-(cd)',
      scenario: (source, { testQueue, signal }) => {
        store = testQueue('')
        return toQueue(source, new Queue<string>('next', { backend: store.backend }), (d) => d.payload, { signal })
      },
      frames: 12,
      options,
    })
  })

  it('forward to another queue', () => {
    cancelSweep({
      arrivals: 'ab',
      scenario: (source, { scheduler }) => {
        const next = new Queue<string>('elsewhere', { backend: memoryBackend({ scheduler }) })
        return pipe(
          source,
          mergeMap((d) => d.forward(next, d.payload), 1),
        )
      },
      frames: 8,
      options,
    })
  })
})

it('finds what is lost: an operator that swallows deliveries leaves them to the grace', () => {
  const sweep = () =>
    cancelSweep({
      arrivals: 'a',
      scenario: (source) =>
        pipe(
          source,
          mergeMap((d) => d.requeue({ delayMs: 1 }), 1),
        ),
      frames: 3,
    })
  expect(sweep).toThrow('message a is acked or as good as new: not when cancelled by stop')
})
