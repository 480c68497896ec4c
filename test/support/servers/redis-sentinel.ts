import type { RedisOptions } from 'ioredis'
import { until } from '../wait.js'
import { type RedisServer, startRedis } from './redis-server.js'

const HOST = '127.0.0.1'
const NAME = 'millrace'
const FORM_DEADLINE_MS = 20_000
const FAILOVER_DEADLINE_MS = 30_000

/**
 * What sentinels do at a human pace unless told otherwise: ask for the state every 10 s, say hello every 2 s, and do
 * nothing for 30 s after they were held up themselves, which a busy machine does to them.
 */
const PACE = { 'info-period': 500, 'publish-period': 200, 'ask-period': 100, 'tilt-period': 1_000 }

export interface RedisSentinelOptions {
  /** How many sentinels; most of them must agree that the master is down. 1 when not given. */
  readonly sentinels?: number
  /** After so long without an answer the master is held for dead. 500 ms when not given. */
  readonly downAfterMs?: number
  readonly appendOnly?: boolean
}

/** A master with a replica, watched by sentinels. */
export interface RedisSentinel {
  /** What ioredis takes: `new Redis(sentinel.options)`. */
  readonly options: RedisOptions
  readonly sentinels: readonly RedisServer[]
  /** The server that is the master since the last failover. */
  readonly master: RedisServer
  /** The other one: the replica, or the master that died. */
  readonly replica: RedisServer
  /** Kills the master, as `kill -9` does. Fulfils when the replica is the master and all sentinels say so. */
  failover(): Promise<void>
  /** Fulfils when the replica has been promoted, whatever was done to the master: frozen, for instance. */
  promoted(): Promise<void>
  /** Starts the server that died. Fulfils when it is a replica in touch with the master. */
  rejoin(): Promise<void>
  /** Fulfils when the former master is a replica in touch with the master: after it was thawed, for instance. */
  rejoined(): Promise<void>
  stop(): Promise<void>
}

/** Starts a master, a replica and sentinels. Fulfils when they know of each other, so that a failover can come. */
export async function startSentinel(options: RedisSentinelOptions = {}): Promise<RedisSentinel> {
  const { sentinels: count = 1, appendOnly = false } = options
  const started: RedisServer[] = []
  const stop = async () => {
    await Promise.all(started.map((server) => server.stop()))
  }
  const start = async (...args: Parameters<typeof startRedis>) => {
    const server = await startRedis(...args)
    started.push(server)
    return server
  }
  try {
    // A replica would wait 5 s for others to come along.
    const first = await start({ appendOnly, args: ['--repl-diskless-sync-delay', '0'] })
    const replicaOf = ['--replicaof', `${HOST} ${first.port}`]
    const second = await start({ appendOnly, args: ['--repl-diskless-sync-delay', '0', ...replicaOf] })
    // A sentinel that finds the replica there when it first asks need not ask again.
    await until('the replica is in touch', () => isReplica(second), FORM_DEADLINE_MS)
    const config = configFor(first, options)
    const sentinels = await Promise.all(Array.from({ length: count }, () => start({ config, args: ['--sentinel'] })))
    await Promise.all(sentinels.map(hurry))
    await until('the sentinels know of all', () => allSee(sentinels), FORM_DEADLINE_MS)
    return watched(first, second, sentinels, stop)
  } catch (error) {
    await stop()
    throw error
  }
}

function watched(
  first: RedisServer,
  second: RedisServer,
  sentinels: readonly RedisServer[],
  stop: () => Promise<void>,
): RedisSentinel {
  let master = first
  let replica = second
  const promoted = async () => {
    await until('the replica is promoted', () => isMaster(replica, sentinels), FAILOVER_DEADLINE_MS)
    const demoted = master
    master = replica
    replica = demoted
  }
  const rejoined = async () => {
    await until('the replica is in touch', () => isReplica(replica), FAILOVER_DEADLINE_MS)
    await until('the sentinels know of all', () => allSee(sentinels), FAILOVER_DEADLINE_MS)
  }
  return {
    options: {
      sentinels: sentinels.map(({ port }) => ({ host: HOST, port })),
      name: NAME,
      // The defaults give up on a sentinel for seconds.
      sentinelRetryStrategy: () => 100,
      retryStrategy: () => 100,
    },
    sentinels,
    get master() {
      return master
    },
    get replica() {
      return replica
    },
    promoted,
    failover: async () => {
      await master.kill()
      await promoted()
    },
    rejoin: async () => {
      await replica.restart()
      await rejoined()
    },
    rejoined,
    stop,
  }
}

function configFor(master: RedisServer, options: RedisSentinelOptions): string {
  const { sentinels = 1, downAfterMs = 500 } = options
  return [
    `sentinel monitor ${NAME} ${HOST} ${master.port} ${Math.floor(sentinels / 2) + 1}`,
    `sentinel down-after-milliseconds ${NAME} ${downAfterMs}`,
    // The next failover may come after twice this.
    `sentinel failover-timeout ${NAME} 2000`,
    '',
  ].join('\n')
}

async function hurry(sentinel: RedisServer): Promise<void> {
  const pace = Object.entries(PACE).flat()
  // Before Redis 7 there is no way to, and it takes some seconds more.
  await sentinel.command('SENTINEL', 'DEBUG', ...pace).catch(() => {})
}

async function isReplica(server: RedisServer): Promise<boolean> {
  const info = String(await server.command('INFO', 'replication').catch(() => ''))
  return info.includes('role:slave') && info.includes('master_link_status:up')
}

async function isMaster(server: RedisServer, sentinels: readonly RedisServer[]): Promise<boolean> {
  const info = String(await server.command('INFO', 'replication').catch(() => ''))
  if (!info.includes('role:master')) return false
  const states = await Promise.all(sentinels.filter(({ running }) => running).map(stateOf))
  // They name the new master before they are done; a master that rejoined by then would stay one.
  return states.every((state) => state?.['port'] === String(server.port) && state['flags'] === 'master')
}

async function stateOf(sentinel: RedisServer): Promise<Record<string, string> | undefined> {
  return fieldsOf([await sentinel.command('SENTINEL', 'MASTER', NAME).catch(() => [])])[0]
}

/** Whether every sentinel knows the others, and holds the replica for one that it could promote. */
async function allSee(sentinels: readonly RedisServer[]): Promise<boolean> {
  const seen = await Promise.all(
    sentinels.map(async (sentinel) => {
      const state = await stateOf(sentinel)
      const replicas = fieldsOf((await sentinel.command('SENTINEL', 'REPLICAS', NAME).catch(() => [])) as unknown[])
      const fit = replicas.some((fields) => fields['flags'] === 'slave' && fields['master-link-status'] === 'ok')
      return fit && state?.['flags'] === 'master' && state['num-other-sentinels'] === String(sentinels.length - 1)
    }),
  )
  return seen.every(Boolean)
}

/** Sentinels answer with names and values in turn. */
function fieldsOf(replies: readonly unknown[]): Record<string, string>[] {
  return replies.map((reply) => {
    const flat = reply as string[]
    const pairs = flat.flatMap((name, index): [string, string][] => (index % 2 ? [] : [[name, flat[index + 1] ?? '']]))
    return Object.fromEntries(pairs)
  })
}
