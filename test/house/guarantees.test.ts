/** The tests that docs/guarantees.md names are there. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const ID = /\b[A-Z]\d{1,3}\b/g

const guarantees = readFileSync(join(ROOT, 'docs/guarantees.md'), 'utf8')
const tests = ['src/testing/conformance', 'test'].map(sourcesUnder).join('\n')

/** The last cell of each row of each table: what proves the row. */
const proofs = guarantees
  .split('\n')
  .filter((line) => line.startsWith('|') && !/^\|[-|]*$/.test(line))
  .map((line) => line.split('|').at(-2)?.trim() ?? '')
  .filter((cell) => cell !== 'tests')

function sourcesUnder(folder: string): string {
  const names = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
  return names
    .filter((name) => name.endsWith('.ts') && !name.endsWith('guarantees.test.ts'))
    .map((name) => readFileSync(join(ROOT, folder, name), 'utf8'))
    .join('\n')
}

/** Every quoted text that begins with an id: the title of a test, or the id handed to the conformance suite. */
function idsIn(sources: string): Set<string> {
  return new Set([...sources.matchAll(/['"`]([A-Z]\d{1,3})\b/g)].map(([, id = '']) => id))
}

describe('docs/guarantees.md', () => {
  it('names a test in every row', () => {
    expect(proofs.length).toBeGreaterThan(10)
    expect(proofs.filter((cell) => !cell.match(ID))).toEqual([])
  })

  it('names no scenario without a test', () => {
    const known = idsIn(tests)
    expect(proofs.flatMap((cell) => cell.match(ID) ?? []).filter((id) => !known.has(id))).toEqual([])
  })

  it('quotes no title that no test has', () => {
    const quoted = proofs.flatMap((cell) => [...cell.matchAll(/"([^"]+)"/g)].map(([, title = '']) => title))
    expect(quoted.filter((title) => !tests.includes(title))).toEqual([])
  })

  it('names no file that is not there', () => {
    const paths = [...guarantees.matchAll(/`((?:src|test)\/[^`]*)`/g)].map(([, path = '']) => path)
    expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
  })
})
