/** Calls of the etcd backend, beside one transaction per message and beside what the server can do at most. */
import { contentionScenarios } from './etcd/contention.js'
import { latencyScenarios } from './etcd/latency.js'
import { millrace } from './etcd/millrace.js'
import { recipe } from './etcd/recipe.js'
import { Server } from './etcd/server.js'
import { claimScenarios, enqueueScenarios } from './etcd/throughput.js'
import { installServers } from './peers.js'
import { runBench } from './runner.js'
import { chosen, ROUNDS } from './trial.js'

// An interrupted bench stops its server too.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130))
installServers()

const products = [millrace, recipe]
const server = await Server.start()
const scenarios = [
  ...enqueueScenarios(server, products),
  ...claimScenarios(server, products),
  ...latencyScenarios(server, products),
  ...contentionScenarios(server, products),
]

await runBench({
  title: 'etcd: enqueue, claim, settle, leases on',
  payload: '200 bytes of JSON',
  durability: 'each transaction is synced to the disk of this host before it is answered; one member, no copies',
  packages: ['millrace', 'rxjs', 'etcd3'],
  notes: [`etcd ${await server.version()}, one for all, emptied and compacted before each run.`],
  rounds: ROUNDS,
  scenarios: chosen(scenarios),
})
await server.stop()
