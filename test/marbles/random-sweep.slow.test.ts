/** Cancel sweeps of scenarios that nobody thought of: the store is slow, loses requests and loses answers, at random. */
import * as fc from 'fast-check'
import { batch, type Delivery, filter, forEach, mergeMap, pipe, retryLater, run } from 'millrace'
import { type CancelSweep, cancelSweep } from 'millrace/testing'
import { it } from 'vitest'
import { IS_WHOLE } from '../support/whole.js'
import { promised } from './cancelling.js'
import { failsAfter, takes } from './handlers.js'

const course = fc.constantFrom('r', '--r', '-s-r', 's---r', '-sr', 's-#', '--#', 's#', '-s-#')
/** In the end the store answers, or there would be something to abandon. */
const courses = fc
  .tuple(fc.array(course, { maxLength: 4 }), fc.constantFrom('r', '-s-r', '--r'))
  .map(([first, last]) => [...first, last])
const latencies = fc.record({ claim: courses, settle: courses, settings: courses, renew: courses })

type Scenario = Pick<CancelSweep<string>, 'scenario' | 'handle' | 'mayFail'>

const scenarios: Record<string, (lanes: number) => Scenario> = {
  source: () => ({
    scenario: (source) => source,
    handle: (d, helpers) => promised(helpers, 3, 0).then(() => d.ack()),
  }),
  handlers: (lanes) => ({ scenario: (source) => pipe(source, mergeMap(takes(2), lanes)) }),
  promises: (lanes) => ({
    scenario: (source, helpers) =>
      pipe(
        source,
        mergeMap((d) => promised(helpers, 5, d.id), lanes),
      ),
  }),
  batches: (lanes) => ({
    scenario: (source, helpers) =>
      pipe(
        source,
        filter(({ id }) => id !== 'a', { otherwise: 'ack' }),
        batch({ size: 2, withinMs: 2 }),
        mergeMap((ds) => promised(helpers, 2, ds.length), lanes),
      ),
  }),
  failures: (lanes) => ({
    scenario: (source) =>
      pipe(
        source,
        retryLater(() => 2),
        mergeMap((d) => (d.attempt < 2 ? failsAfter(1)(d) : takes(1)(d)), lanes),
      ),
    mayFail: () => true,
  }),
  run: (lanes) => ({
    scenario: (source, helpers) => {
      const work = mergeMap((d: Delivery<string>) => promised(helpers, 70, d.id), lanes)
      return run(pipe(source, work), { signal: helpers.signal })
    },
  }),
  forEach: () => ({
    scenario: (source, helpers) =>
      forEach(source, (d) => promised(helpers, 2, 0).then(() => d.ack()), { signal: helpers.signal }),
  }),
}

it.each(Object.keys(scenarios))('%s', (name) => {
  const property = fc.property(
    fc.oneof(
      fc.tuple(
        fc.constantFrom('ab', 'a-b--c', '(abc)', 'ab-(cd)', '--a(bc)', '(abcde)'),
        fc.integer({ min: 1, max: 3 }),
        fc.constant(false),
      ),
      fc.tuple(
        fc.constantFrom('(abcdefghijkl)', '(abcdefgh)-(ijklmnopq)--r', 'a(bcdefghijk)(lmn)-(opqrst)'),
        fc.integer({ min: 8, max: 10 }),
        fc.constant(true),
      ),
    ),
    latencies,
    fc.record({ graceMs: fc.constantFrom(0, 3, 50), drainMs: fc.constantFrom(0, 4) }),
    ([arrivals, lanes, pipelined], delays, source) => {
      const scenario = scenarios[name]?.(lanes) as Scenario
      cancelSweep({ arrivals, frames: 8, options: { latencies: delays, pipelined }, source, ...scenario })
    },
  )
  return fc.assert(property, { numRuns: IS_WHOLE ? 100 : 30 })
})
