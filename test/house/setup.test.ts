import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, it } from 'vitest'

const script = fileURLToPath(new URL('../../scripts/setup.mjs', import.meta.url))
const locked = { '': {}, 'node_modules/a': { version: '1.0.0', integrity: 'sha512-a' } }
const forOthers = { 'node_modules/other-platform': { version: '1.0.0', integrity: 'sha512-o', optional: true } }
let clone: string

beforeEach(() => {
  clone = mkdtempSync(join(tmpdir(), 'millrace-setup-'))
  mkdirSync(join(clone, 'scripts'))
  cpSync(script, join(clone, 'scripts/setup.mjs'))
  writePackages('package-lock.json', { ...locked, ...forOthers })
  // Stands in for npm: says what it was asked to do, and ends with a code of its own.
  writeFileSync(join(clone, 'npm.js'), "console.log('npm', process.argv[2]); process.exit(3)")
})

afterEach(() => rmSync(clone, { recursive: true }))

function writePackages(file: string, packages: object): void {
  writeFileSync(join(clone, file), JSON.stringify({ packages }))
}

function installed(packages: object): void {
  mkdirSync(join(clone, 'node_modules/a'), { recursive: true })
  writePackages('node_modules/.package-lock.json', packages)
}

function setUp(): { output: string; status: number | null } {
  const env = { ...process.env, npm_execpath: join(clone, 'npm.js') }
  const { stdout, status } = spawnSync(process.execPath, [join(clone, 'scripts/setup.mjs')], { env, encoding: 'utf8' })
  return { output: stdout, status }
}

it('installs into a fresh clone, and fails when that fails', () => {
  expect(setUp()).toEqual({ output: 'setup: node_modules is missing, running npm ci\nnpm ci\n', status: 3 })
})

it('is silent when what is installed is what is locked', () => {
  installed(locked)
  expect(setUp()).toEqual({ output: '', status: 0 })
})

it('does not mind packages that somebody tries out', () => {
  installed({ ...locked, 'node_modules/b': { version: '1.0.0' } })
  expect(setUp()).toEqual({ output: '', status: 0 })
})

it.each([
  ['another version', { 'node_modules/a': { version: '0.9.0', integrity: 'sha512-a' } }],
  ['other contents', { 'node_modules/a': { version: '1.0.0', integrity: 'sha512-b' } }],
  ['a missing package', {}],
])('installs over %s', (_, packages) => {
  installed(packages)
  expect(setUp().output).toContain('node_modules/a differs from the lock')
})

it('installs when the folder of a package is gone', () => {
  installed(locked)
  rmSync(join(clone, 'node_modules/a'), { recursive: true })
  expect(setUp().output).toContain('npm ci')
})
