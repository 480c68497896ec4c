/**
 * The catalogue of scenarios: which tests carry an id, read from the tests themselves.
 *
 * A test carries an id when it is written down with `scenario('N1', 'title', …)` or when its title begins with one, as
 * in `it('A4 title', …)`.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type AnyNode, parseSource, walk } from './source.js'

export interface CatalogueEntry {
  readonly id: string
  readonly title: string
  /** From the root of the repository. */
  readonly file: string
}

const START = '<!-- catalogue:start -->'
const END = '<!-- catalogue:end -->'
const TESTS = new Set(['it', 'test'])
/** One id or more, then the title: `A4 title`, `N25, B8 title`. */
const TITLE = /^((?:[A-Z]\d+)(?:[,/ ]+[A-Z]\d+)*) (.+)$/s

/** The entries of one file. Throws when it is not valid TypeScript. */
export function entriesOf(file: string, text: string): CatalogueEntry[] {
  const entries: CatalogueEntry[] = []
  const groups: Group[] = []
  walk(parseSource(file, text).program, (node) => {
    groups.push(...groupOf(node))
    for (const { ids, title } of titleOf(node)) {
      const full = [...around(node, groups), title].join(' › ')
      for (const id of ids.match(/[A-Z]\d+/g) ?? []) entries.push({ id, title: full, file })
    }
    return true
  })
  return entries
}

/** What tests are grouped under: a title that goes before theirs. */
interface Group {
  readonly title: string
  readonly start: number
  readonly end: number
}

function groupOf(node: AnyNode): Group[] {
  if (node.type !== 'CallExpression' || nameOf(node.callee as AnyNode) !== 'describe') return []
  const title = textOf((node.arguments as AnyNode[])[0] as AnyNode)
  return title === undefined ? [] : [{ title, start: node.start, end: node.end }]
}

/** The titles of the groups that a node lies in, the outermost first. A group is walked before what is in it. */
function around(node: AnyNode, groups: readonly Group[]): string[] {
  return groups.filter(({ start, end }) => start <= node.start && node.end <= end).map(({ title }) => title)
}

/** All entries of a repository, by id. */
export function readCatalogue(root: string): CatalogueEntry[] {
  const files = ['src/testing/conformance', 'test'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .map((path) => `${folder}/${path.replaceAll('\\', '/')}`)
      .filter((path) => path.endsWith('.ts')),
  )
  return files.flatMap((file) => entriesOf(file, readFileSync(join(root, file), 'utf8'))).sort(byId)
}

/** The document with the table between its marks brought up to date. Throws when the marks are not there. */
export function withCatalogue(document: string, entries: readonly CatalogueEntry[]): string {
  const [start, end] = [document.indexOf(START), document.indexOf(END)]
  if (start < 0 || end < start) throw new Error(`the document lacks ${START} … ${END}`)
  return `${document.slice(0, start + START.length)}\n\n${tableOf(entries)}\n\n${document.slice(end)}`
}

function tableOf(entries: readonly CatalogueEntry[]): string {
  const rows = entries.map(({ id, title, file }) => `| ${id} | ${title.replaceAll('|', '\\|')} | \`${file}\` |`)
  return ['| id | title | file |', '|---|---|---|', ...new Set(rows)].join('\n')
}

function byId(a: CatalogueEntry, b: CatalogueEntry): number {
  return (
    a.id.slice(0, 1).localeCompare(b.id.slice(0, 1)) ||
    Number(a.id.slice(1)) - Number(b.id.slice(1)) ||
    a.file.localeCompare(b.file)
  )
}

function titleOf(node: AnyNode): { readonly ids: string; readonly title: string }[] {
  if (node.type !== 'CallExpression') return []
  const [first, second] = (node.arguments as AnyNode[]).map(textOf)
  const name = nameOf(node.callee as AnyNode)
  if (name === 'scenario') return first && second ? [{ ids: first, title: second }] : []
  const [, ids, title] = (TESTS.has(name ?? '') && TITLE.exec(first ?? '')) || []
  return ids && title ? [{ ids, title }] : []
}

/** `it` for `it(…)`, for `it.skip(…)` and for `it.each(…)(…)`. */
function nameOf(callee: AnyNode): string | undefined {
  if (callee.type === 'Identifier') return callee.name
  if (callee.type === 'MemberExpression') return nameOf(callee.object as AnyNode)
  return callee.type === 'CallExpression' ? nameOf(callee.callee as AnyNode) : undefined
}

/** The text of a string; what a template fills in is shown as `…`. */
function textOf(node: AnyNode): string | undefined {
  if (node.type === 'Literal') return typeof node.value === 'string' ? node.value : undefined
  if (node.type !== 'TemplateLiteral') return undefined
  return node.quasis.map(({ value }) => value.cooked ?? value.raw).join('…')
}
