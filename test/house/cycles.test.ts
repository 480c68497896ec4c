import { expect, it } from 'vitest'
import { checkSources } from '../../scripts/house/check.js'

function cycles(tree: Record<string, string>): string[] {
  return checkSources(new Map(Object.entries(tree)))
    .filter(({ rule }) => rule === 'cycle')
    .map(({ file, line, message }) => `${file}:${line} ${message}`)
}

it('finds a cycle of two, and the import that closes it', () => {
  const tree = { 'src/core/a.ts': "import './b.js'", 'src/core/b.ts': "\nimport './a.js'" }
  expect(cycles(tree)).toEqual(['src/core/b.ts:2 src/core/a.ts -> src/core/b.ts -> src/core/a.ts'])
})

it('finds a longer cycle behind files that are not part of it', () => {
  const tree = {
    'src/core/a.ts': "import './b.js'",
    'src/core/b.ts': "export * from './c.js'",
    'src/core/c.ts': "export const load = () => import('./d.js')",
    'src/core/d.ts': "import { x } from './b.js'",
  }
  expect(cycles(tree)).toEqual(['src/core/d.ts:1 src/core/b.ts -> src/core/c.ts -> src/core/d.ts -> src/core/b.ts'])
})

it('finds a file that imports itself', () => {
  expect(cycles({ 'src/core/a.ts': "import './a.js'" })).toHaveLength(1)
})

it('counts an import of types that still loads the module', () => {
  const tree = { 'src/core/a.ts': "import { type X } from './b.js'", 'src/core/b.ts': "import './a.js'" }
  expect(cycles(tree)).toHaveLength(1)
})

it('lets imports that are erased go round', () => {
  const tree = { 'src/core/a.ts': "import './b.js'", 'src/core/b.ts': "import type { X } from './a.js'" }
  expect(cycles(tree)).toEqual([])
})

it('does not take two ways to the same file for a cycle', () => {
  const tree = {
    'src/core/a.ts': "import './b.js'\nimport './c.js'",
    'src/core/b.ts': "import './c.js'",
    'src/core/c.ts': '',
  }
  expect(cycles(tree)).toEqual([])
})
