/**
 * The demo: audits every package under a node_modules folder.
 *
 *     npm run demo
 *     npm run demo -- --dir ../other/node_modules --lanes 16
 *
 * Exit codes: 0 when all is done, 130 when it was stopped by a signal, 2 for bad options.
 */
import { backend } from './backend.js'
import { type DemoOptions, readOptions, USAGE } from './options.js'
import { auditAll, fill, openQueues, type Queues, takeStock } from './pipeline.js'
import { showProgress } from './progress.js'
import { accountLine, report, stopLine } from './report.js'
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
    console.error(`${(error as Error).message}\n${USAGE}`)
    process.exitCode = 2
    return undefined
  }
}

async function runDemo(options: DemoOptions): Promise<void> {
  const signals = watchSignals(() => console.error('\nStopping. Once more to force.'))
  try {
    await audit(openQueues(backend), options, signals)
  } catch (error) {
    // Only the search for packages ends so; a pipeline that is stopped gives its account.
    if (error !== signals.stop.reason) throw error
    console.log('Stopped before anything was enqueued')
  } finally {
    await backend.close()
    signals.end()
  }
  if (signals.stop.aborted) process.exitCode = 130
}

async function audit(queues: Queues, { dir, lanes }: DemoOptions, signals: SignalWatch): Promise<void> {
  const how = await fill(queues, dir, signals.stop)
  const before = await takeStock(queues)
  console.log(how === 'new' ? `${before.left} packages in ${dir}` : `Going on with ${before.left} packages`)
  const progress = showProgress(process.stderr, before.found - before.left, before.found)
  const summary = await auditAll(queues, lanes, signals, progress)
  console.log(`\n${await reportOn(queues)}\n`)
  if (signals.stop.aborted) console.log(stopLine(summary))
  console.log(accountLine(await takeStock(queues)))
}

async function reportOn({ packages, audits }: Queues): Promise<string> {
  const stored = await gather(audits.peek())
  const found = stored.flatMap(({ payload }) => payload ?? [])
  return report(found, await gather(packages.deadLetters))
}

async function gather<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

await main(process.argv.slice(2))
