import { until } from '../wait.js'
import { type RedisServer, startRedis } from './redis-server.js'

const HOST = '127.0.0.1'
const SLOTS = 16_384
const FORM_DEADLINE_MS = 20_000

export interface RedisClusterOptions {
  /** Whether one dead master stops all keys, which is what Redis does by default, or only its own. */
  readonly fullCoverage?: boolean
  /** After so long without an answer a node is held for dead. 1 s when not given. */
  readonly nodeTimeoutMs?: number
  readonly appendOnly?: boolean
}

/** Three masters without replicas; each has a third of the slots. */
export interface RedisCluster {
  readonly servers: readonly RedisServer[]
  /** What ioredis takes: `new Cluster(cluster.nodes)`. */
  readonly nodes: readonly { readonly host: string; readonly port: number }[]
  /** The server that has the slot of a key. */
  nodeOf(key: string): Promise<RedisServer>
  /** Fulfils when every node that runs says that the cluster is well. */
  ready(): Promise<void>
  stop(): Promise<void>
}

/** Starts a cluster of three masters. Fulfils when each of them knows all slots and takes commands. */
export async function startCluster(options: RedisClusterOptions = {}): Promise<RedisCluster> {
  const { fullCoverage = true, nodeTimeoutMs = 1_000, appendOnly = false } = options
  const args = [
    ...['--cluster-require-full-coverage', fullCoverage ? 'yes' : 'no'],
    ...['--cluster-node-timeout', String(nodeTimeoutMs)],
  ]
  const servers = await Promise.all([0, 1, 2].map(() => startRedis({ cluster: true, appendOnly, args })))
  const ready = () => until('every node knows all slots', () => allWell(servers), FORM_DEADLINE_MS)
  const stop = async () => {
    await Promise.all(servers.map((server) => server.stop()))
  }
  try {
    await form(servers)
    await ready()
  } catch (error) {
    await stop()
    throw error
  }
  return {
    servers,
    nodes: servers.map(({ port }) => ({ host: HOST, port })),
    nodeOf: (key) => ownerOf(key, servers),
    ready,
    stop,
  }
}

/** The first slot of each node, and behind the last one the end. */
function boundsOf(count: number): number[] {
  return Array.from({ length: count + 1 }, (_, index) => Math.round((SLOTS * index) / count))
}

async function form(servers: readonly RedisServer[]): Promise<void> {
  const bounds = boundsOf(servers.length)
  await Promise.all(
    servers.map(async (server, index) => {
      const [first = 0, end = SLOTS] = bounds.slice(index)
      // ADDSLOTSRANGE came with Redis 7.
      await server.command('CLUSTER', 'ADDSLOTS', ...Array.from({ length: end - first }, (_, slot) => first + slot))
      // Two masters with one epoch would first have to settle who takes another.
      await server.command('CLUSTER', 'SET-CONFIG-EPOCH', index + 1)
    }),
  )
  const [first, ...others] = servers
  await Promise.all(others.map((other) => first?.command('CLUSTER', 'MEET', HOST, other.port)))
}

async function allWell(servers: readonly RedisServer[]): Promise<boolean> {
  const running = servers.filter(({ running }) => running)
  const wells = await Promise.all(running.map((server) => isWell(server, servers.length)))
  return wells.every(Boolean)
}

async function isWell(server: RedisServer, size: number): Promise<boolean> {
  const info = String(await server.command('CLUSTER', 'INFO').catch(() => ''))
  return [`cluster_state:ok`, `cluster_slots_ok:${SLOTS}`, `cluster_known_nodes:${size}`, `cluster_size:${size}`].every(
    (line) => info.includes(`${line}\r\n`),
  )
}

async function ownerOf(key: string, servers: readonly RedisServer[]): Promise<RedisServer> {
  const running = servers.find(({ running }) => running)
  const slot = Number(await running?.command('CLUSTER', 'KEYSLOT', key))
  const owner = servers[boundsOf(servers.length).findLastIndex((first) => first <= slot)]
  if (owner === undefined) throw new Error(`no node has slot ${slot}`)
  return owner
}
