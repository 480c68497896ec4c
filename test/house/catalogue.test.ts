import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { entriesOf, readCatalogue, withCatalogue } from '../../scripts/house/catalogue.js'

const root = fileURLToPath(new URL('../..', import.meta.url))

function found(text: string): string[] {
  return entriesOf('test/file.ts', text).map(({ id, title }) => `${id}: ${title}`)
}

describe('what carries an id', () => {
  it.each([
    ["scenario('N1', 'one message', async () => {})", ['N1: one message']],
    ["it('A4 an abort', () => {})", ['A4: an abort']],
    ["test('M3 three', () => {})", ['M3: three']],
    ["it('N25, B8 a kill', () => {})", ['N25: a kill', 'B8: a kill']],
    ["it.each([1])('F4 of %s', () => {})", ['F4: of %s']],
    ["it.skip('F4 later', () => {})", ['F4: later']],
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text of a test
    ['it(`D1 ${what} closes`, () => {})', ['D1: … closes']],
    ["describe('group', () => { it('E1 inside', () => {}) })", ['E1: group › inside']],
  ])('%s', (text, entries) => {
    expect(found(text)).toEqual(entries)
  })

  it.each([
    ["it('an abort', () => {})"],
    ["it('A title', () => {})"],
    ["describe('A4 a group', () => {})"],
    ["scenario(id, 'title')"],
    ["// it('A4 in a comment')"],
    ["work('A4 something else')"],
  ])('not %s', (text) => {
    expect(found(text)).toEqual([])
  })
})

describe('the table', () => {
  const document = 'before\n<!-- catalogue:start -->\nold\n<!-- catalogue:end -->\nafter\n'

  it('stands between its marks, each row once', () => {
    const entry = { id: 'A1', title: 'this | that', file: 'test/a.ts' }
    expect(withCatalogue(document, [entry, entry])).toBe(
      'before\n<!-- catalogue:start -->\n\n| id | title | file |\n|---|---|---|\n| A1 | this \\| that | `test/a.ts` |\n\n' +
        '<!-- catalogue:end -->\nafter\n',
    )
  })

  it('written twice is the same', () => {
    const once = withCatalogue(document, [])
    expect(withCatalogue(once, [])).toBe(once)
  })

  it('needs its marks', () => {
    expect(() => withCatalogue('nothing', [])).toThrow('lacks')
  })
})

it('docs/testing.md is up to date; if not, `npm run catalogue` brings it there', () => {
  const document = readFileSync(`${root}/docs/testing.md`, 'utf8')
  expect(document).toBe(withCatalogue(document, readCatalogue(root)))
})
