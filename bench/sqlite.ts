/** Transactions of the SQLite backend, beside other queues on SQLite and a loop by hand. */
import { tmpdir } from 'node:os'
import { installPeers } from './peers.js'
import { runBench } from './runner.js'
import { depthScenarios } from './sqlite/depth.js'
import { latencyScenarios } from './sqlite/latency.js'
import { products } from './sqlite/products.js'
import { POLL_MS } from './sqlite/store.js'
import { claimScenarios, enqueueScenarios } from './sqlite/throughput.js'

// An interrupted bench removes its files too.
process.once('SIGINT', () => process.exit(130))
installPeers()
const all = await products()
const scenarios = (['full', 'normal'] as const).flatMap((durability) => [
  ...enqueueScenarios(all, durability),
  ...claimScenarios(all, durability),
  ...latencyScenarios(all, durability),
])
// Where no waiting for the disk hides what a claim costs.
scenarios.push(...depthScenarios(all, 'normal'))
// `npm run bench -- sqlite full claim` runs the scenarios that have these words in their titles.
const words = process.argv.slice(2)

await runBench({
  title: 'SQLite: enqueue, claim, settle, leases on',
  payload: '200 bytes of JSON',
  durability: `WAL; full: synchronous=FULL, survives a power cut; normal: a power cut may lose the last commits; in ${tmpdir()}`,
  packages: ['millrace', 'rxjs', 'better-sqlite3', 'plainjob', 'liteque'],
  notes: [
    `liteque runs on better-sqlite3 11.3.0, because it cannot consume with the one above.`,
    `Whoever is not woken looks every ${POLL_MS} ms, which takes a core; the default of plainjob is 1 000.`,
    `plainjob keeps finished jobs; liteque reads all that is queued for each claim, so it gets short queues.`,
  ],
  rounds: 5,
  scenarios: scenarios.filter(({ title }) => words.every((word) => title.includes(word))),
})
// Over the timers that a peer leaves behind.
process.exit()
