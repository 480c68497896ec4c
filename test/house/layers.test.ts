import { describe, expect, it } from 'vitest'
import { checkSources } from '../../scripts/house/check.js'

/** A tree in which every layer has a file to be imported. */
const TREE = {
  'src/index.ts': '',
  'src/driver.ts': '',
  'src/errors.ts': '',
  'src/eventual.ts': '',
  'src/options.ts': '',
  'src/queue.ts': '',
  'src/core/engine.ts': '',
  'src/operators/batch.ts': '',
  'src/sinks/run.ts': '',
  'src/sources/memory/index.ts': '',
  'src/sources/redis/index.ts': '',
  'src/sources/redis/claim.ts': '',
  'src/testing/index.ts': '',
}

/** The rules broken when one more file with this text is added. */
function rules(path: string, text: string): string[] {
  const tree = new Map(Object.entries({ ...TREE, [path]: text }))
  return checkSources(tree).map(({ file, line, rule }) => `${file}:${line} ${rule}`)
}

describe('what each layer may import', () => {
  it.each([
    ['src/index.ts', './sinks/run.js'],
    ['src/index.ts', './operators/batch.js'],
    ['src/queue.ts', './core/engine.js'],
    ['src/core/more.ts', '../driver.js'],
    ['src/core/more.ts', './engine.js'],
    ['src/core/more.ts', 'rxjs'],
    ['src/operators/more.ts', '../core/engine.js'],
    ['src/operators/more.ts', './batch.js'],
    ['src/sinks/more.ts', '../operators/batch.js'],
    ['src/sources/redis/more.ts', './claim.js'],
    ['src/sources/redis/more.ts', '../../options.js'],
    ['src/sources/redis/more.ts', 'ioredis'],
    ['src/sources/redis/more.ts', 'node:crypto'],
    ['src/testing/more.ts', '../sources/memory/index.js'],
    ['src/testing/more.ts', '../index.js'],
    ['src/testing/more.ts', 'rxjs/testing'],
  ])('%s sees %s', (path, specifier) => {
    expect(rules(path, `import { x } from '${specifier}'`)).toEqual([])
  })

  it.each([
    ['src/core/bad.ts', '../operators/batch.js'],
    ['src/core/bad.ts', '../sinks/run.js'],
    ['src/core/bad.ts', '../sources/memory/index.js'],
    ['src/core/bad.ts', '../index.js'],
    ['src/operators/bad.ts', '../sinks/run.js'],
    ['src/operators/bad.ts', '../sources/memory/index.js'],
    ['src/sinks/bad.ts', '../sources/redis/index.js'],
    ['src/queue.ts', './operators/batch.js'],
    ['src/queue.ts', './sources/memory/index.js'],
    ['src/index.ts', './sources/memory/index.js'],
    ['src/sources/redis/bad.ts', '../memory/index.js'],
    ['src/sources/redis/bad.ts', '../../core/engine.js'],
    ['src/sources/redis/bad.ts', '../../queue.js'],
    ['src/core/bad.ts', '../testing/index.js'],
    ['src/sources/memory/bad.ts', '../../testing/index.js'],
    ['src/index.ts', './testing/index.js'],
    ['src/core/bad.ts', '../../test/fixture.js'],
  ])('%s does not see %s', (path, specifier) => {
    expect(rules(path, `\nimport { x } from '${specifier}'`)).toContain(`${path}:2 layers`)
  })

  it.each([
    ['src/core/bad.ts', 'ioredis'],
    ['src/core/bad.ts', 'millrace'],
    ['src/sources/memory/bad.ts', 'ioredis'],
    ['src/sources/redis/bad.ts', 'better-sqlite3'],
    ['src/testing/bad.ts', 'vitest'],
    ['src/testing/bad.ts', '@vitest/runner'],
  ])('%s does not see the package %s', (path, specifier) => {
    expect(rules(path, `import { x } from '${specifier}'`)).toEqual([`${path}:1 packages`])
  })
})

describe('every way to import', () => {
  it.each([
    ["import type { X } from '../sinks/run.js'"],
    ["import { type X } from '../sinks/run.js'"],
    ["import '../sinks/run.js'"],
    ["import * as run from '../sinks/run.js'"],
    ["export { x } from '../sinks/run.js'"],
    ["export type { X } from '../sinks/run.js'"],
    ["export * from '../sinks/run.js'"],
    ["export const x = () => import('../sinks/run.js')"],
    ["export type X = import('../sinks/run.js').X"],
    ["export type X = typeof import('../sinks/run.js')"],
  ])('%s', (text) => {
    expect(rules('src/operators/bad.ts', text)).toEqual(['src/operators/bad.ts:1 layers'])
  })

  it('refuses an import() that nobody can follow', () => {
    expect(rules('src/sources/redis/bad.ts', 'export const x = (name: string) => import(name)')).toEqual([
      'src/sources/redis/bad.ts:1 packages',
    ])
  })

  it('does not take a comment or a string for an import', () => {
    expect(
      rules('src/core/fine.ts', "// import '../sinks/run.js'\nexport const x = \"import '../sinks/run.js'\""),
    ).toEqual([])
  })
})

it('reports an import of a file that is not there', () => {
  expect(rules('src/core/bad.ts', "import './missing.js'")).toEqual(['src/core/bad.ts:1 unresolved'])
})

it('reports a folder that is no layer', () => {
  expect(rules('src/extras/bad.ts', '')).toEqual(['src/extras/bad.ts:1 unknown-folder'])
  expect(rules('src/sources/kafka/index.ts', '')).toEqual(['src/sources/kafka/index.ts:1 unknown-folder'])
})

it.each(['src/core/utils.ts', 'src/core/time-utils.ts', 'src/core/helpers.ts'])('refuses the name %s', (path) => {
  expect(rules(path, '')).toEqual([`${path}:1 no-utils`])
})

it('refuses text that does not parse, and says where', () => {
  expect(() => rules('src/core/bad.ts', 'export const x = 1\nexport const = 2')).toThrow('src/core/bad.ts:2')
})
