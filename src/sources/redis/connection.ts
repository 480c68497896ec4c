/**
 * The connections of a backend: one for commands and one for hints, made at first use.
 */
import { Redis } from 'ioredis'
import type { RedisClient } from './client.js'

/** How to reach the server: a client of the caller's, which is used and left alone, or what makes one of our own. */
export interface Target {
  readonly client?: RedisClient
  readonly make: () => RedisClient
}

export function targetOf(target: RedisClient | Record<string, unknown> | string): Target {
  if (isClient(target)) return { client: target, make: () => target.duplicate() }
  const options = { maxRetriesPerRequest: null, enableOfflineQueue: true }
  const make = () => (typeof target === 'string' ? new Redis(target, options) : new Redis({ ...target, ...options }))
  return { make: () => make() as unknown as RedisClient }
}

export function isClient(value: unknown): value is RedisClient {
  const candidate = value as Partial<RedisClient> | null
  return typeof candidate?.callBuffer === 'function' && typeof candidate.duplicate === 'function'
}

export class Connection {
  readonly #target: Target
  #own: RedisClient | undefined

  constructor(target: Target) {
    this.#target = target
  }

  get client(): RedisClient {
    if (this.#target.client) return this.#target.client
    if (this.#own === undefined) {
      this.#own = this.#target.make()
      // Told by the commands that fail; without a listener the client would write it to the console.
      this.#own.on('error', () => {})
    }
    return this.#own
  }

  /** A further connection, for hints. */
  another(): RedisClient {
    return this.#target.make()
  }

  close(): void {
    this.#own?.disconnect()
    this.#own = undefined
  }
}
