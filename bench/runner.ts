/**
 * Runs contenders against each other and reports medians, spread and ratios.
 *
 * A bench is a file of this folder that calls `runBench` at its top level; `npm run bench -- NAME` runs it against a
 * fresh build. The first line of the comment at its head is what the list of benches shows.
 *
 * ```ts
 * // bench/memory-consume.ts
 * await runBench({
 *   title: 'consume from memory',
 *   payload: '64 bytes of JSON',
 *   durability: 'none',
 *   packages: ['millrace', 'rxjs'],
 *   scenarios: [
 *     {
 *       title: '10 000 messages, 10 handlers',
 *       baseline: 'hand-written loop',
 *       contenders: [
 *         { name: 'millrace', run: () => timed(10_000, consumeAll) },
 *         { name: 'hand-written loop', run: () => timed(10_000, loopOverAll) },
 *       ],
 *     },
 *   ],
 * })
 * ```
 *
 * The contenders of a scenario take turns, A B A B …, for a warm-up round that is not counted and then `rounds`
 * measured ones, so that whatever happens to the host happens to all. Garbage is collected before each run. A round
 * yields a throughput, `{ operations, elapsedMs }`, or `{ latenciesMs }`, and `amounts` of other quantities beside or
 * instead; all contenders of a scenario yield the same kinds. A ratio is the median of the ratios within each round,
 * against the scenario's `baseline`.
 */
import { headerOf } from './header.js'
import { formatScenario } from './report.js'

/** What one run of a contender measured: how fast many operations were, how long each one took, what it cost. */
export type Sample = (
  | { readonly operations: number; readonly elapsedMs: number }
  | { readonly latenciesMs: readonly number[] }
  | { readonly amounts: Amounts }
) & { readonly amounts?: Amounts }

/** Quantities by what they are called at the head of their column, unit included. */
export type Amounts = Readonly<Record<string, number>>

export interface Contender {
  readonly name: string
  /** Before the warm-up round, outside of what is measured. */
  readonly setUp?: () => Promise<void>
  /** One round. It prepares its own queue, and times only what the scenario is about. */
  readonly run: () => Promise<Sample>
  /** After the last round, also when one failed. */
  readonly tearDown?: () => Promise<void>
}

export interface Scenario {
  readonly title: string
  readonly contenders: readonly Contender[]
  /** The name of the contender that the others are compared with. */
  readonly baseline: string
  /** Measured rounds; 7 unless the bench says otherwise. */
  readonly rounds?: number
}

export interface Bench {
  readonly title: string
  /** What each message carries, in words. */
  readonly payload: string
  /** What survives which kind of crash, in words: a fast queue that forgets is another thing. */
  readonly durability: string
  /** The packages whose versions the header names. */
  readonly packages: readonly string[]
  /** What else a reader must know to compare fairly. */
  readonly notes?: readonly string[]
  readonly scenarios: readonly Scenario[]
  /** Measured rounds of scenarios that do not say. */
  readonly rounds?: number
}

/** The samples of one scenario: for each contender one per round, in order. */
export type Samples = ReadonlyMap<string, readonly Sample[]>

const DEFAULT_ROUNDS = 7

/** Runs all scenarios one after the other and prints the report. Rejects when a contender does. */
export async function runBench(bench: Bench, print: (text: string) => void = console.log): Promise<void> {
  for (const scenario of bench.scenarios) checkScenario(scenario)
  print(headerOf(bench))
  for (const scenario of bench.scenarios) {
    const samples = await measure(scenario, scenario.rounds ?? bench.rounds ?? DEFAULT_ROUNDS)
    print(formatScenario(scenario, samples))
  }
}

/** Times a piece of work that performs `operations` operations. */
export async function timed(operations: number, work: () => Promise<unknown>): Promise<Sample> {
  const began = performance.now()
  await work()
  return { operations, elapsedMs: performance.now() - began }
}

/** Runs one scenario: a warm-up round, then the measured ones, the contenders taking turns in each. */
export async function measure({ contenders }: Scenario, rounds: number): Promise<Samples> {
  const samples = new Map<string, Sample[]>(contenders.map(({ name }) => [name, []]))
  const ready: Contender[] = []
  try {
    for (const contender of contenders) {
      ready.push(contender)
      await contender.setUp?.()
    }
    await runRound(contenders)
    for (let round = 0; round < rounds; round += 1) {
      for (const [name, sample] of await runRound(contenders)) samples.get(name)?.push(sample)
    }
    return samples
  } finally {
    for (const contender of ready) await contender.tearDown?.()
  }
}

async function runRound(contenders: readonly Contender[]): Promise<[name: string, sample: Sample][]> {
  const round: [string, Sample][] = []
  for (const { name, run } of contenders) {
    // Nobody pays for the garbage of the one before. Present under --expose-gc, as `npm run bench` starts it.
    globalThis.gc?.()
    round.push([name, await run()])
  }
  return round
}

function checkScenario({ title, contenders, baseline }: Scenario): void {
  const names = contenders.map(({ name }) => name)
  if (new Set(names).size < names.length) throw new Error(`${title}: two contenders have the same name`)
  if (!names.includes(baseline)) throw new Error(`${title}: the baseline ${baseline} is none of ${names.join(', ')}`)
}
