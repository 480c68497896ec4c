import { describe, expect, it } from 'vitest'
import { type Contender, measure, runBench, type Scenario, timed } from '../../bench/runner.js'

/** Contenders that write down when they run, and yield the given rates per round, the warm-up first. */
function contender(name: string, rates: readonly number[], log: string[] = []): Contender {
  const left = [...rates]
  return {
    name,
    setUp: async () => void log.push(`${name} up`),
    run: async () => {
      log.push(name)
      return { operations: left.shift() ?? 0, elapsedMs: 1000 }
    },
    tearDown: async () => void log.push(`${name} down`),
  }
}

function scenario(contenders: readonly Contender[], baseline = 'B'): Scenario {
  return { title: 'some work', contenders, baseline }
}

describe('measure', () => {
  it('lets contenders take turns, after a warm-up round that does not count', async () => {
    const log: string[] = []
    const samples = await measure(scenario([contender('A', [9, 1, 2], log), contender('B', [9, 3, 4], log)]), 2)
    expect(log).toEqual(['A up', 'B up', 'A', 'B', 'A', 'B', 'A', 'B', 'A down', 'B down'])
    expect(samples.get('A')?.map((sample) => 'operations' in sample && sample.operations)).toEqual([1, 2])
  })

  it('tears down what it set up when a round fails', async () => {
    const log: string[] = []
    const failing: Contender = { name: 'B', run: () => Promise.reject(new Error('broken')) }
    await expect(measure(scenario([contender('A', [1], log), failing]), 1)).rejects.toThrow('broken')
    expect(log).toEqual(['A up', 'A', 'A down'])
  })
})

describe('runBench', () => {
  const frame = { title: 'a bench', payload: '1 byte', durability: 'none', packages: ['millrace', 'rxjs'], rounds: 3 }

  it('prints where it ran, then medians, spread and the ratio to the baseline', async () => {
    const printed: string[] = []
    const scenarios = [scenario([contender('A', [0, 2000, 4000, 6000]), contender('B', [0, 1000, 1000, 3000])])]
    await runBench({ ...frame, scenarios }, (text) => printed.push(text))
    const text = printed.join('\n')
    expect(text).toMatch(/millrace \d+\.\d+\.\d+, rxjs 7\./)
    expect(text).toContain(process.version)
    expect(text).toContain('| A | 4 000        | 2 000 - 6 000 | 2.00 (2.00 - 4.00) |')
    expect(text).toContain('| B | 1 000        | 1 000 - 3 000 | 1 (baseline)       |')
  })

  it('reports latencies by p50 and p99', async () => {
    const printed: string[] = []
    const fixed = { name: 'B', run: async () => ({ latenciesMs: [1, 2, 3] }) }
    await runBench({ ...frame, scenarios: [scenario([fixed])] }, (text) => printed.push(text))
    expect(printed.join('\n')).toMatch(/p50 ms[\s\S]*\| B \| 2\.00[\s\S]*p99 ms[\s\S]*\| B \| 2\.98/)
  })

  it('reports other quantities under their own names, without a ratio to nothing', async () => {
    const printed: string[] = []
    const costing = (name: string, bytes: number) => ({
      name,
      run: async () => ({
        operations: 1,
        elapsedMs: 1,
        amounts: { 'bytes per message': bytes, 'commands/s': bytes - 200 },
      }),
    })
    await runBench({ ...frame, scenarios: [scenario([costing('A', 300), costing('B', 200)])] }, (text) =>
      printed.push(text),
    )
    const text = printed.join('\n')
    expect(text).toMatch(/bytes per message[\s\S]*\| A \| 300 +\| 300 - 300 +\| 1\.50[\s\S]*\| B \| 200/)
    expect(text).toMatch(/commands\/s[\s\S]*\| A \| 100 +\| 100 - 100 +\| - /)
  })

  it('refuses a baseline that does not compete, before anything runs', async () => {
    const log: string[] = []
    const bench = { ...frame, scenarios: [scenario([contender('A', [1], log)])] }
    await expect(runBench(bench, () => {})).rejects.toThrow('the baseline B is none of A')
    expect(log).toEqual([])
  })

  it('refuses two contenders of one name', async () => {
    const scenarios = [scenario([contender('B', [1]), contender('B', [1])])]
    await expect(runBench({ ...frame, scenarios }, () => {})).rejects.toThrow('same name')
  })
})

it('timed times the work and keeps the count', async () => {
  const sample = await timed(5, async () => {})
  expect(sample).toEqual({ operations: 5, elapsedMs: expect.any(Number) })
})
