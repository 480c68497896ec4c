/** What the demo says at its end. */
import type { DeadLetter, Summary } from 'millrace'
import type { Audit } from './audit.js'
import type { Account, Package } from './pipeline.js'
import { printable } from './printable.js'

/** How many of the slowest and the largest are shown. */
const MOST_ROWS = 5

type Row = readonly [label: string, value: string]

/** `audited` counts the packages too that an earlier run has audited and that are not installed any more. */
export function report(audits: readonly Audit[], refused: readonly DeadLetter<Package>[], audited: number): string {
  return [
    section('Licences', licenceRows(audits)),
    section(
      'Slowest',
      topBy(
        audits,
        ({ ms }) => ms,
        (ms) => `${ms.toFixed(1)} ms`,
      ),
    ),
    section(
      'Largest',
      topBy(audits, ({ bytes }) => bytes, formatBytes),
    ),
    section(
      'Dead letters',
      refused.map(({ payload, id, reason }) => [payload?.path ?? id, reason]),
    ),
    section('Total', totals(audits, audited - audits.length)),
  ]
    .filter((text) => text !== '')
    .join('\n\n')
}

/** What a run that goes on says of those before it. */
export function resumedLine({ found, audited, refused }: Account): string {
  return `resumed: ${audited + refused} of ${found} packages were done before`
}

export function accountLine({ found, audited, refused, left }: Account): string {
  return `${found} found: ${audited} audited, ${refused} dead letters, ${left} left`
}

export function stopLine({ released, settledDuringGrace, abandoned }: Summary): string {
  return `Stopped: ${settledDuringGrace} finished within the grace, ${released} released, ${abandoned} abandoned`
}

export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} kB`
  return `${(bytes / 1_000_000).toFixed(1)} MB`
}

function licenceRows(audits: readonly Audit[]): Row[] {
  const counts = new Map<string, number>()
  for (const { licence } of audits) counts.set(licence, (counts.get(licence) ?? 0) + 1)
  const rows = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
  return rows.map(([licence, count]) => [licence, String(count)])
}

function topBy(audits: readonly Audit[], measure: (audit: Audit) => number, format: (value: number) => string): Row[] {
  return [...audits]
    .sort((a, b) => measure(b) - measure(a))
    .slice(0, MOST_ROWS)
    .map((audit) => [titleOf(audit), format(measure(audit))])
}

function totals(audits: readonly Audit[], uninstalled: number): Row[] {
  const sum = (measure: (audit: Audit) => number) => audits.reduce((total, audit) => total + measure(audit), 0)
  const missing: Row[] = uninstalled > 0 ? [['uninstalled since', String(uninstalled)]] : []
  return [
    ['packages', String(audits.length)],
    ...missing,
    ['files', String(sum(({ files }) => files))],
    ['size', formatBytes(sum(({ bytes }) => bytes))],
  ]
}

function titleOf({ name, version }: Audit): string {
  return version === '' ? name : `${name}@${version}`
}

/** A heading and two columns; nothing without rows. Names, licences and reasons are what the packages say they are. */
function section(title: string, rows: readonly Row[]): string {
  if (rows.length === 0) return ''
  const shown = rows.map(([label, value]) => [printable(label), printable(value)] as const)
  const width = Math.max(...shown.map(([label]) => label.length))
  return [title, ...shown.map(([label, value]) => `  ${label.padEnd(width)}  ${value}`)].join('\n')
}
