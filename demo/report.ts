/**
 * What the demo says at its end.
 */
import type { DeadLetter, Summary } from 'millrace'
import type { Audit } from './audit.js'
import type { InstalledPackage } from './packages.js'

/** Where the messages are, as the queue itself counts them. */
export interface Account {
  readonly found: number
  readonly done: number
  readonly dead: number
  readonly left: number
}

export interface Findings {
  readonly audits: readonly Audit[]
  readonly deadLetters: readonly DeadLetter<InstalledPackage>[]
  readonly account: Account
  readonly summary: Summary
  readonly tookMs: number
  readonly stopped: boolean
}

type Cell = string | number

const TOP = 5
const MOST_DEAD_LETTERS = 25
const WIDEST = 100

export function report(findings: Findings): string {
  const { audits, deadLetters, stopped } = findings
  const parts = [
    section('Licences', licences(audits)),
    section('Slowest', top(audits, ({ tookMs }) => tookMs, duration)),
    section('Largest', top(audits, ({ bytes }) => bytes, size)),
    section('Dead letters', deadLetterRows(deadLetters)),
    totals(findings),
    ...(stopped ? [stopAccount(findings)] : []),
  ]
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`
}

function licences(audits: readonly Audit[]): Cell[][] {
  const counts = new Map<string, number>()
  for (const { licence } of audits) counts.set(licence, (counts.get(licence) ?? 0) + 1)
  return [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
}

function top(audits: readonly Audit[], by: (audit: Audit) => number, show: (value: number) => string): Cell[][] {
  return [...audits]
    .sort((a, b) => by(b) - by(a))
    .slice(0, TOP)
    .map((audit) => [`${audit.place}@${audit.version}`, show(by(audit))])
}

function deadLetterRows(letters: readonly DeadLetter<InstalledPackage>[]): Cell[][] {
  const rows: Cell[][] = letters
    .slice(0, MOST_DEAD_LETTERS)
    .map(({ id, payload, reason }) => [payload?.place ?? id, reason])
  const more = letters.length - rows.length
  return more > 0 ? [...rows, [`… and ${more} more`, '']] : rows
}

function totals({ audits, account, tookMs }: Findings): string {
  const files = sum(audits, (audit) => audit.files)
  const bytes = sum(audits, (audit) => audit.bytes)
  const { found, done, dead } = account
  return [
    `${found} packages found, ${done} audited, ${dead} dead letters in ${duration(tookMs)}`,
    `${files} files, ${size(bytes)}`,
  ].join('\n')
}

function stopAccount({ account: { found, done, dead, left }, summary }: Findings): string {
  const { acked, requeued, deadLettered, released, settledDuringGrace, abandoned, lost } = summary
  return [
    `Stopped: ${done} done + ${dead} dead + ${left} left = ${found} found`,
    `Claims: ${acked} acked, ${requeued} requeued, ${deadLettered} dead-lettered, ${released} released, ${lost} lost,`,
    `        ${settledDuringGrace} settled during the grace, ${abandoned} abandoned`,
  ].join('\n')
}

function sum(audits: readonly Audit[], of: (audit: Audit) => number): number {
  return audits.reduce((total, audit) => total + of(audit), 0)
}

/** Two columns. Nothing without rows. */
function section(title: string, rows: readonly Cell[][]): string {
  if (rows.length === 0) return ''
  const shown = rows.map((row) => row.map((cell) => printable(String(cell))))
  const width = Math.max(...shown.map(([first = '']) => first.length))
  return [title, ...shown.map(([first = '', second = '']) => `  ${first.padEnd(width)}  ${second}`.trimEnd())].join('\n')
}

/** Names and licences are other people's text: none of it may steer the terminal or break the table. */
function printable(text: string): string {
  const plain = text.replace(/\p{C}/gu, '?')
  return plain.length > WIDEST ? `${plain.slice(0, WIDEST - 1)}…` : plain
}

function duration(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`
}

function size(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`
  return bytes < 1_000_000 ? `${(bytes / 1_000).toFixed(1)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`
}
