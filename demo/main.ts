/**
 * The demo: audits every package under a node_modules folder.
 *
 *     npm run demo
 *     npm run demo -- --dir ../other/node_modules --lanes 16
 *
 * A run that was stopped or killed (`pkill -9 -f demo/main.ts`) is gone on with by the next; one that has come to the
 * end of the audit is followed by a new audit. `--memory` keeps nothing.
 *
 * Exit codes: 0 when all is done, 130 when it was stopped by a signal, 2 for bad options, 1 for what went wrong.
 */
import { inspect } from 'node:util'
import { openStore } from './backend.js'
import { type DemoOptions, readOptions, USAGE } from './options.js'
import {
  type Account,
  auditAll,
  auditsOf,
  fill,
  openPackages,
  type Packages,
  type Plan,
  takeStock,
} from './pipeline.js'
import { printable, printableLines } from './printable.js'
import { showProgress } from './progress.js'
import { accountLine, report, resumedLine, stopLine } from './report.js'
import { type SignalWatch, tolerateClosedPipes, watchSignals } from './signals.js'

async function main(args: readonly string[]): Promise<void> {
  tolerateClosedPipes()
  const options = optionsOrExitCode(args)
  if (options !== undefined) await runDemo(options)
}

function optionsOrExitCode(args: readonly string[]): DemoOptions | undefined {
  try {
    return readOptions(args)
  } catch (error) {
    console.error(`${printable((error as Error).message)}\n${USAGE}`)
    process.exitCode = 2
    return undefined
  }
}

async function runDemo(options: DemoOptions): Promise<void> {
  const signals = watchSignals(() => console.error('\nStopping. Once more to force.'))
  const store = openStore(options)
  let finished = false
  try {
    const { left } = await audit(openPackages(store.backend), options, signals)
    finished = left === 0
  } catch (error) {
    // Only the search for packages ends so; a pipeline that is stopped gives its account.
    if (error !== signals.stop.reason) throw error
    console.log('Stopped before the audit began')
  } finally {
    await store.close(finished)
    signals.end()
  }
  if (signals.stop.aborted) process.exitCode = 130
}

async function audit(packages: Packages, { dir, lanes }: DemoOptions, signals: SignalWatch): Promise<Account> {
  const plan = await fill(packages, dir, signals.stop)
  const before = await takeStock(packages)
  console.log(headline(plan, before, printable(dir)))
  const progress = showProgress(process.stderr, before.found - before.left, before.found)
  const summary = await auditAll(packages, lanes, signals, progress)
  const account = await takeStock(packages)
  console.log(`\n${await reportOn(packages, plan, account)}\n`)
  if (signals.stop.aborted) console.log(stopLine(summary))
  if (plan.resumed) console.log(resumedLine(before))
  console.log(accountLine(account))
  return account
}

function headline({ resumed }: Plan, { found, left }: Account, dir: string): string {
  return resumed ? `Going on with ${left} of ${found} packages in ${dir}` : `${found} packages in ${dir}`
}

async function reportOn(packages: Packages, { paths }: Plan, { audited }: Account): Promise<string> {
  return report(await auditsOf(packages, paths), await gather(packages.deadLetters), audited)
}

async function gather<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

try {
  await main(process.argv.slice(2))
} catch (error) {
  // An error of the file system carries a path in its message.
  console.error(printableLines(inspect(error)))
  process.exitCode = 1
}
