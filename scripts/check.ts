/**
 * All checks; `npm test` is the set-up and then this.
 *
 * A failed step does not keep the others from running: one run shows all that is wrong. Each step is the npm script
 * of that name, so that any of them can be run alone. The last line is the count of the tests.
 */
import { spawnSync } from 'node:child_process'
import { IS_WHOLE } from '../test/support/whole.js'
import { runVitest } from './run-vitest.js'
import { addTallies, formatTally, type Tally } from './tally.js'

let tally: Tally = { passed: 0, failed: 0, skipped: 0 }

type Step = readonly [name: string, run: () => boolean]

const steps: readonly Step[] = [
  ['lint', npmScript('lint')],
  ['types', npmScript('types')],
  ['boundaries', npmScript('boundaries')],
  ['unused', npmScript('unused')],
  ...lanes(),
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

/** Coverage of the fast lane, since counting slows the others down by a third; of all lanes where all is to be run. */
function lanes(): Step[] {
  if (IS_WHOLE) return [['tests with coverage', tests('--coverage')]]
  return [
    ['fast tests with coverage', tests('--project=fast', '--coverage')],
    ['conformance and slow tests', tests('--project=conformance', '--project=slow')],
  ]
}
