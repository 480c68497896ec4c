/** Turns the samples of a scenario into a table that reads well in a terminal and in Markdown. */
import type { Sample, Samples, Scenario } from './runner.js'
import { pairedRatio, quantile, type Spread, spreadOf } from './statistics.js'

/** One quantity of a scenario: its value in a sample, or undefined for samples of another kind. */
interface Measure {
  readonly title: string
  readonly of: (sample: Sample) => number | undefined
}

const MEASURES: readonly Measure[] = [
  {
    title: 'operations/s',
    of: (sample) => ('operations' in sample ? (sample.operations * 1000) / sample.elapsedMs : undefined),
  },
  { title: 'p50 ms', of: (sample) => ('latenciesMs' in sample ? quantile(sample.latenciesMs, 0.5) : undefined) },
  { title: 'p99 ms', of: (sample) => ('latenciesMs' in sample ? quantile(sample.latenciesMs, 0.99) : undefined) },
]

/** One table per quantity that the samples carry: median, spread over the rounds, ratio to the baseline. */
export function formatScenario(scenario: Scenario, samples: Samples): string {
  const tables = [...MEASURES, ...amountsOf(samples)].flatMap(({ title, of }) => {
    const values = new Map([...samples].map(([name, own]) => [name, valuesOf(own, of)]))
    if ([...values.values()].every((own) => own.length === 0)) return []
    return [tableOf(title, values, scenario.baseline)]
  })
  return [`\n## ${scenario.title}`, ...tables].join('\n\n')
}

/** The other quantities, in the order in which they come up. */
function amountsOf(samples: Samples): Measure[] {
  const titles = new Set([...samples.values()].flat().flatMap(({ amounts }) => Object.keys(amounts ?? {})))
  return [...titles].map((title) => ({ title, of: ({ amounts }) => amounts?.[title] }))
}

function valuesOf(samples: readonly Sample[], of: Measure['of']): number[] {
  return samples.map(of).filter((value) => value !== undefined)
}

function tableOf(title: string, values: ReadonlyMap<string, readonly number[]>, baseline: string): string {
  const base = values.get(baseline) ?? []
  const rows = [...values].map(([name, own]) => {
    const { median, min, max } = spreadOf(own)
    const ratio = name === baseline ? '1 (baseline)' : formatRatio(pairedRatio(own, base))
    return [name, formatNumber(median), `${formatNumber(min)} - ${formatNumber(max)}`, ratio]
  })
  return formatTable([['', title, 'min - max', `x ${baseline}`], ...rows])
}

/** There is none to a baseline that costs nothing. */
function formatRatio({ median, min, max }: Spread): string {
  if (!Number.isFinite(median)) return '-'
  return `${median.toFixed(2)} (${min.toFixed(2)} - ${max.toFixed(2)})`
}

/** Three digits say all that a bench knows. */
function formatNumber(value: number): string {
  if (value === 0) return '0'
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))))
  return value >= 1000
    ? Math.round(value).toLocaleString('en').replaceAll(',', ' ')
    : value.toFixed(Math.min(digits, 6))
}

function formatTable(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  const [head, ...body] = rows.map(
    (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`,
  )
  const rule = `|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`
  return [head, rule, ...body].join('\n')
}
