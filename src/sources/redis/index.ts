/**
 * The Redis backend: queues on a server, for any number of processes and machines.
 */
import type { Backend } from '../../driver.js'
import { InvalidOptionError } from '../../errors.js'
import { checkOptions, name } from '../../options.js'
import { RedisBackend } from './backend.js'
import type { RedisClient } from './client.js'
import { isClient, targetOf } from './connection.js'

export type { RedisClient } from './client.js'

/** Options of {@link redisBackend}. */
export interface RedisBackendOptions {
  /**
   * Keeps all queues of this backend in one slot of a cluster, so that a message can be forwarded from one to another in
   * one step. Default: each queue has a slot of its own.
   */
  readonly hashTag?: string
}

/** A backend that keeps its queues on a Redis server, by ioredis. */
export function redisBackend(
  target: RedisClient | Readonly<Record<string, unknown>> | string,
  options: RedisBackendOptions = {},
): Backend {
  checkOptions(options, 'redisBackend', { hashTag: name })
  const usable = typeof target === 'string' ? target !== '' : typeof target === 'object' && target !== null
  if (!usable && !isClient(target))
    throw new InvalidOptionError('target', target, 'a client of ioredis, its options or a URL')
  return new RedisBackend(targetOf(target), options.hashTag)
}
