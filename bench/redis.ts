/** Calls of the Redis backend, beside other queues on Redis and a script by hand. */
import { installPeers, installServers } from './peers.js'
import { blmove } from './redis/blmove.js'
import { byHandFused } from './redis/by-hand.js'
import { depthScenarios } from './redis/depth.js'
import { idleScenarios } from './redis/idle.js'
import { abortScenarios, latencyScenarios } from './redis/latency.js'
import { memoryScenarios } from './redis/memory.js'
import { processScenarios } from './redis/processes.js'
import { products } from './redis/products.js'
import { Server } from './redis/server.js'
import { claimScenarios, enqueueScenarios } from './redis/throughput.js'
import { runBench } from './runner.js'
import { chosen, ROUNDS } from './trial.js'

// An interrupted bench stops its server too.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130))
installPeers()
installServers()
const all = await products()
// Whoever polls has no place where waiting is measured.
const waiting = [...all.filter((product) => product !== byHandFused), blmove]
const server = await Server.start()
const scenarios = [
  ...enqueueScenarios(
    server,
    all.filter((product) => product !== byHandFused),
  ),
  ...claimScenarios(server, all),
  ...processScenarios(server, all),
  ...latencyScenarios(server, waiting),
  ...abortScenarios(server, waiting),
  ...idleScenarios(server, waiting),
  ...memoryScenarios(server, all),
  ...depthScenarios(server, all),
]

await runBench({
  title: 'Redis: enqueue, claim, settle, leases on',
  payload: '200 bytes of JSON',
  durability: 'none: redis-server without snapshots and without a log, on this host',
  packages: ['millrace', 'rxjs', 'ioredis', 'bullmq', 'bee-queue'],
  notes: [
    `redis-server ${await server.version()}, one for all, emptied before each run.`,
    'BullMQ removes jobs when they are finished; bee-queue too, and sends no events. Both keep their other defaults.',
    'By hand: one script, no ids, priorities, delays or outcomes; it waits for all of a claim before the next.',
  ],
  rounds: ROUNDS,
  scenarios: chosen(scenarios),
})
await server.stop()
// Over the timers that a peer leaves behind.
process.exit()
