/**
 * The Redis backend: queues on a server, for any number of processes and machines.
 */
import type { Backend } from '../../driver.js'
import { UnsupportedError } from '../../errors.js'
import { checkOptions, integer, name } from '../../options.js'
import { RedisBackend } from './backend.js'
import { HIDDEN, type RedisTarget, targetOf } from './target.js'

export type { RedisClient } from './client.js'
export type { RedisTarget } from './target.js'

/** Options of {@link redisBackend}. */
export interface RedisBackendOptions {
  /**
   * Keeps all queues of this backend in one slot of a cluster, so that a message can be forwarded from one to another in
   * one step. Part of the names of their keys: every process that uses them must say the same. Default: each queue has a
   * slot of its own, named after it.
   */
  readonly hashTag?: string
  /**
   * A change is confirmed only when so many replicas have it (`WAIT`), so that a failover loses less. It is asked for
   * again until they have, like one that was not answered. Default 0: the master's word is enough. Not for a cluster.
   */
  readonly replicas?: number
}

/**
 * A backend that keeps its queues on a Redis server of version 6.2 or later, or Valkey, by ioredis (5 or 6). Needs the
 * package `ioredis`.
 *
 * `target` is a URL (`redis://`, or `rediss://` for TLS), the options of an ioredis client (with `sentinels` and `name`
 * to follow the master that Sentinel names), or a client, of one server or of a `Cluster`. A client is only copied: connections
 * of our own are made with its options, one for commands and one for hints, and it is neither used, blocked nor closed.
 * They are made at first use and let go when the last queue closes.
 *
 * Throws `InvalidOptionError` for bad options, without any password that the target holds. What is wrong with the server
 * shows at first use: `BackendUnavailableError` while it cannot be reached, is loading, or is a replica;
 * `BackendError` for what it refuses, such as a wrong password or an enqueue when its memory is full;
 * `StoreVersionError` for a queue that a newer version of this library has written. A server that evicts keys is warned
 * about (`process.on('warning')`, code `MILLRACE_REDIS_EVICTION`).
 *
 * @example
 * const backend = redisBackend('redis://127.0.0.1:6379')
 * await using orders = new Queue<Order>('orders', { backend })
 */
export function redisBackend(target: RedisTarget, options: RedisBackendOptions = {}): Backend {
  checkOptions(withoutStrangers(options), 'redisBackend', RULES)
  const { hashTag, replicas = 0 } = options
  const checked = targetOf(target)
  if (checked.isCluster && replicas > 0) throw new UnsupportedError('redis', 'replicas', NOT_IN_A_CLUSTER)
  return new RedisBackend(checked, hashTag, replicas)
}

/** An option that does not belong here may be one of the client, such as its password: its value goes into no error. */
function withoutStrangers(options: unknown): unknown {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) return options
  return Object.fromEntries(Object.entries(options).map(([key, value]) => [key, key in RULES ? value : HIDDEN]))
}

const RULES = { hashTag: name, replicas: integer(0, 100) }
const NOT_IN_A_CLUSTER = 'replicas cannot be waited for in a cluster: WAIT says nothing of which node it asks'
