/** Runs vitest and counts from its own JSON report, not from what it prints. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readTally, type Tally } from './tally.js'

const VITEST = fileURLToPath(new URL('../node_modules/vitest/vitest.mjs', import.meta.url))

/** One run with vitest's own arguments. It failed when a test did, and also when coverage or a stray error broke it. */
export function runVitest(args: readonly string[]): { ok: boolean; tally: Tally } {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-tests-'))
  try {
    const report = join(folder, 'report.json')
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
    const { status } = spawnSync(process.execPath, [VITEST, 'run', ...reporters, ...args], { stdio: 'inherit' })
    const tally = readTally(report)
    const ok = status === 0 && tally.failed === 0
    if (!ok && tally.failed === 0)
      console.error('no test failed, yet the run did: coverage or a stray error, see above')
    return { ok, tally }
  } finally {
    rmSync(folder, { recursive: true })
  }
}
