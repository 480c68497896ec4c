/** Runs of the demo that are ended midway, and the runs that go on with them. */
import { spawnSync } from 'node:child_process'
import { closeSync, constants, existsSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import type { QueueStats } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'
import { describe, expect, it, vi } from 'vitest'
import { storeFile } from '../../demo/backend.js'
import { openPackages } from '../../demo/pipeline.js'
import { accountOf, auditedTree, largeTree, says, startDemo } from './demo-process.js'

/** Enough for a busy machine, and less than the lease that a queue has by default, which nobody should wait for. */
const PATIENCE = { timeout: 25_000, interval: 20 }
const PROGRESS = /^\d+ of \d+ packages$/m

type Files = Record<string, string | object>

/** Packages in this order, every thirtieth without a licence. */
function packagesOf(prefix: string, count: number): Files {
  const files: Files = {}
  for (let index = 0; index < count; index += 1) {
    const name = `${prefix}${String(index).padStart(3, '0')}`
    files[`${name}/package.json`] = index % 30 === 29 ? { name } : { name, license: 'MIT' }
    for (const file of ['a.js', 'lib/b.js', 'lib/c.js']) files[`${name}/${file}`] = ''
  }
  return files
}

/** A package whose manifest is a pipe: its audit does not end before somebody writes to that. */
function dam(dir: string, name: string): string {
  const manifest = join(dir, name, 'package.json')
  rmSync(manifest)
  expect(spawnSync('mkfifo', [manifest]).status).toBe(0)
  return manifest
}

function breakDam(manifest: string): void {
  rmSync(manifest)
  writeFileSync(manifest, '{"license":"MIT"}')
}

/** Lets the audit that waits at the dam go on; waits for one that is about to come there. */
async function openDam(manifest: string): Promise<void> {
  const { O_WRONLY, O_NONBLOCK } = constants
  const pipe = await vi.waitFor(() => openSync(manifest, O_WRONLY | O_NONBLOCK), PATIENCE)
  writeSync(pipe, '{"license":"MIT"}')
  closeSync(pipe)
}

/** Looked at with a connection that is closed again: the demo leaves a store alone that others have open. */
async function statsOf(dir: string): Promise<QueueStats> {
  const backend = sqliteBackend(storeFile(dir))
  try {
    return await openPackages(backend).stats()
  } finally {
    await backend.close()
  }
}

/** Kills a run, by its progress, before anything could have been done about it. */
async function runAndKill(dir: string): Promise<string> {
  const { child, ended } = startDemo('--dir', dir, '--lanes', '2')
  await says(child.stderr, PROGRESS)
  child.kill('SIGKILL')
  const { code, out } = await ended
  expect(code).toBe(null)
  return out
}

describe.skipIf(process.platform === 'win32')('a demo that is killed', () => {
  it('goes on where it was, twice, and audits every package once', async () => {
    const dir = auditedTree({
      ...packagesOf('a', 150),
      ...{ 'b0/package.json': '', 'b1/package.json': '' },
      ...packagesOf('c', 150),
      'd/package.json': '',
    })
    // Neither lane of the first run comes past the middle, none of the second past the last package.
    const middle = [dam(dir, 'b0'), dam(dir, 'b1')]
    const last = dam(dir, 'd')

    expect(await runAndKill(dir)).toBe(`303 packages in ${dir}\n`)
    const first = await statsOf(dir)
    const firstDone = first.ackedTotal + first.dead
    expect(firstDone).toBeGreaterThanOrEqual(31)
    expect(firstDone).toBeLessThanOrEqual(150)

    for (const manifest of middle) breakDam(manifest)
    expect(await runAndKill(dir)).toBe(`Going on with ${303 - firstDone} of 303 packages in ${dir}\n`)
    const second = await statsOf(dir)
    const secondDone = second.ackedTotal + second.dead
    expect(secondDone).toBeGreaterThan(firstDone)
    expect(secondDone).toBeLessThan(303)

    const { ended } = startDemo('--dir', dir, '--lanes', '2')
    const all = { enqueuedTotal: 303, ackedTotal: 292, dead: 10, ready: 0, delayed: 0, claimed: 1 }
    await vi.waitFor(async () => expect(await statsOf(dir)).toMatchObject(all), PATIENCE)
    await openDam(last)
    const { code, out } = await ended
    expect(code).toBe(0)
    expect(out).toContain(`\nresumed: ${secondDone} of 303 packages were done before\n`)
    expect(accountOf(out)).toEqual({ found: 303, audited: 293, refused: 10, left: 0 })
    expect(out).toContain('\nLicences\n  MIT  293\n')
    expect(out.match(/^ {2}[ac]\d{3} {2}MissingLicenceError: /gm)).toHaveLength(10)
    expect(out).toMatch(/\nTotal\n {2}packages {2}293\n {2}files {5}1163\n/)
    expect(existsSync(storeFile(dir))).toBe(false)
  })

  it('shares its audit with a run that is started meanwhile', async () => {
    const dir = auditedTree({ ...packagesOf('a', 60), 'b/package.json': '' })
    const last = dam(dir, 'b')
    const one = startDemo('--dir', dir, '--lanes', '2')
    await says(one.child.stderr, PROGRESS)
    const other = startDemo('--dir', dir, '--lanes', '2')
    await says(other.child.stdout, /^Going on with \d+ of 61 packages/)
    await openDam(last)
    for (const { code, out } of [await one.ended, await other.ended]) {
      expect(code).toBe(0)
      expect(accountOf(out)).toEqual({ found: 61, audited: 59, refused: 2, left: 0 })
      expect(out).toContain('\nLicences\n  MIT  59\n')
    }
    expect(existsSync(storeFile(dir))).toBe(false)
  })
})

describe('a demo that is stopped', () => {
  it('gives back what it holds, goes on in the next run, and starts afresh after that', async () => {
    const dir = largeTree()
    const stopped = startDemo('--dir', dir, '--lanes', '4')
    await says(stopped.child.stderr, PROGRESS)
    stopped.child.kill('SIGINT')
    const { code, out } = await stopped.ended
    expect(code).toBe(130)
    const { audited, left } = accountOf(out)
    expect(audited + left).toBe(1_500)
    expect(await statsOf(dir)).toMatchObject({ ackedTotal: audited, ready: left, claimed: 0 })

    const resumed = await startDemo('--dir', dir).ended
    expect(resumed.out).toMatch(new RegExp(`^Going on with ${left} of 1500 packages in `))
    expect(resumed.out).toContain(`\nresumed: ${audited} of 1500 packages were done before\n`)
    expect(accountOf(resumed.out)).toEqual({ found: 1_500, audited: 1_500, refused: 0, left: 0 })
    expect(resumed.out).toContain('\nLicences\n  MIT  1500\n')

    const afresh = await startDemo('--dir', dir).ended
    expect(afresh.out).toMatch(/^1500 packages in /)
    expect(afresh.out).not.toContain('resumed')
    expect(afresh.code).toBe(0)
  })
})
