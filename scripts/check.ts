/**
 * All checks; `npm test` is the set-up and then this.
 *
 * A failed step does not keep the others from running: one run shows all that is wrong. Each step is the npm script
 * of that name, so that any of them can be run alone. The last line is the count of the tests.
 */
import { spawnSync } from 'node:child_process'
import { runVitest } from './run-vitest.js'
import { addTallies, formatTally, type Tally } from './tally.js'

let tally: Tally = { passed: 0, failed: 0, skipped: 0 }

const steps: readonly (readonly [name: string, run: () => boolean])[] = [
  ['lint', npmScript('lint')],
  ['types', npmScript('types')],
  ['boundaries', npmScript('boundaries')],
  ['unused', npmScript('unused')],
  ['fast tests with coverage', tests('--project=fast', '--coverage')],
  // Without coverage: counting would slow them down by a third.
  ['conformance and slow tests', tests('--project=conformance', '--project=slow')],
  ['package', npmScript('package')],
]
const results = steps.map(([name, run]) => timed(name, run))
console.log(`\n${results.map(({ line }) => line).join('\n')}\n`)
console.log(formatTally(tally))
process.exitCode = results.every(({ ok }) => ok) ? 0 : 1

function timed(name: string, run: () => boolean): { ok: boolean; line: string } {
  console.log(`\n== ${name}`)
  const began = performance.now()
  const ok = run()
  const line = `${ok ? 'ok    ' : 'FAILED'} ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`
  console.log(line)
  return { ok, line }
}

function npmScript(name: string): () => boolean {
  // The command shell is for Windows, where npm is a batch file.
  const shell = process.platform === 'win32'
  return () => spawnSync('npm', ['run', '--silent', name], { stdio: 'inherit', shell }).status === 0
}

function tests(...args: readonly string[]): () => boolean {
  return () => {
    const run = runVitest(args)
    tally = addTallies(tally, run.tally)
    return run.ok
  }
}
