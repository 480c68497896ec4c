/**
 * How the server is reached: what a caller gave, turned into clients of our own.
 */
import { Redis, type RedisOptions } from 'ioredis'
import { BackendUnavailableError, InvalidOptionError } from '../../errors.js'
import type { RedisClient } from './client.js'

/** A client of ioredis, which is copied and left alone, or the options of one, or a URL. */
export type RedisTarget = RedisClient | RedisOptions | string

/** Makes clients. None connects before it is asked to, but those of a cluster. */
export interface Target {
  readonly isCluster: boolean
  readonly keyPrefix: string
  commands(): RedisClient
  /** A client that does not come back by itself. `commands` is one that knows the cluster. */
  subscriber(commands: RedisClient | undefined): RedisClient
}

/** Stands for what may hold a password. */
export const HIDDEN = 'a value that is not shown'

/** An attempt to connect is given up after this long, where the caller's options say nothing else. */
const CONNECT_MS = 5_000
const LONGEST_BACKOFF_MS = 2_000
/** A sentinel that is silent for so long is passed over for the next. */
const SENTINEL_MS = 1_000

/**
 * What must be so for nothing to be lost, whatever the caller's options say. Requests are repeated by their tokens, so
 * the client must not do so by itself, nor keep commands to send them when nobody waits for them any more. A name
 * is prefixed by us, since the client would leave channels out.
 */
const OWN = {
  keyPrefix: '',
  lazyConnect: false,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  enableAutoPipelining: false,
  readOnly: false,
  commandTimeout: undefined,
  socketTimeout: undefined,
  // How long a connection that is cut may take to say goodbye.
  disconnectTimeout: 200,
  // A master that has become a replica says so; the new one is looked for.
  reconnectOnError: (error: Error) => (error.message.includes('READONLY') ? 1 : false),
}

const SUBSCRIBING = { ...OWN, autoResubscribe: false, retryStrategy: () => null }

/** Checks what a caller gave, and says nothing of what it holds: it may hold a password. */
export function targetOf(given: RedisTarget): Target {
  if (isClient(given)) return typeof given.nodes === 'function' ? clusterTarget(given) : clientTarget(given)
  if (typeof given === 'string') return madeTarget(optionsOfUrl(given), given)
  if (isOptions(given)) return madeTarget(given)
  const shown = typeof given === 'object' && given !== null ? HIDDEN : given
  throw new InvalidOptionError('target', shown, 'a client of ioredis, its options or a URL')
}

function isClient(value: unknown): value is RedisClient {
  const candidate = value as Partial<RedisClient> | null | undefined
  return typeof candidate?.callBuffer === 'function' && typeof candidate.duplicate === 'function'
}

/**
 * Anything else that can connect is a client of another kind, whose options we would not find. Options inside a
 * `connection`, as other libraries have them, would be overlooked, and mean a server of this machine.
 */
function isOptions(given: unknown): given is RedisOptions {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return false
  return !('connect' in given || 'sendCommand' in given || 'connection' in given)
}

/** `redis:`, or `rediss:` for TLS. */
function optionsOfUrl(text: string): RedisOptions {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !['redis:', 'rediss:'].includes(url.protocol)) {
    const shown = text === '' ? '' : HIDDEN
    throw new InvalidOptionError('target', shown, 'a URL that begins with redis:// or rediss://')
  }
  return { keyPrefix: url.searchParams.get('keyPrefix') ?? '' }
}

function madeTarget(options: RedisOptions, url?: string): Target {
  const make = (own: RedisOptions) => {
    const all = {
      connectTimeout: CONNECT_MS,
      sentinelCommandTimeout: SENTINEL_MS,
      ...(url === undefined && options),
      ...own,
    }
    // What comes first counts, and a URL may say other things than we need.
    return Reflect.construct(Redis, url === undefined ? [all] : [all, url]) as RedisClient
  }
  return {
    isCluster: false,
    keyPrefix: prefixIn(options),
    commands: () => make({ ...OWN, retryStrategy: retrying(options) }),
    subscriber: () => make(SUBSCRIBING),
  }
}

function clientTarget(given: RedisClient): Target {
  const { sentinelCommandTimeout = SENTINEL_MS } = given.options as { readonly sentinelCommandTimeout?: number }
  const duplicate = (own: Record<string, unknown>) => given.duplicate({ sentinelCommandTimeout, ...own } as never)
  return {
    isCluster: false,
    keyPrefix: prefixIn(given.options),
    commands: () => duplicate({ ...OWN, retryStrategy: retrying(given.options) }),
    subscriber: () => duplicate(SUBSCRIBING),
  }
}

function clusterTarget(given: RedisClient): Target {
  const { redisOptions: asked } = given.options as { readonly redisOptions?: RedisOptions }
  const redisOptions = { ...asked, ...OWN }
  const own = {
    keyPrefix: '',
    lazyConnect: false,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    // It fails now and then while a node is still connecting. A cluster that is not well says so to commands.
    enableReadyCheck: false,
    slotsRefreshTimeout: CONNECT_MS,
    clusterRetryStrategy: backoff,
    redisOptions,
  }
  return {
    isCluster: true,
    keyPrefix: prefixIn(given.options),
    commands: () => given.duplicate([] as never, own as never),
    subscriber(commands) {
      const nodes = commands?.nodes?.() ?? []
      const node = nodes[Math.floor(Math.random() * nodes.length)]
      if (node === undefined) throw new BackendUnavailableError('no node of the Redis cluster is known')
      return node.duplicate(SUBSCRIBING as never)
    },
  }
}

function prefixIn({ keyPrefix }: { readonly keyPrefix?: unknown }): string {
  if (keyPrefix === undefined || keyPrefix === null) return ''
  // With empty braces before ours, a cluster takes all of a key for its tag, and the keys of a queue fall apart.
  if (typeof keyPrefix === 'string' && !/^[^{]*\{\}/.test(keyPrefix)) return keyPrefix
  throw new InvalidOptionError('keyPrefix', keyPrefix, 'a string without empty braces')
}

/** The caller's own strategy, except that it may not end: sources wait until the server is back, or until cancelled. */
function retrying({ retryStrategy }: { readonly retryStrategy?: unknown }): (times: number) => number {
  return (times) => {
    const wanted =
      typeof retryStrategy === 'function' ? (retryStrategy as (times: number) => unknown)(times) : undefined
    return typeof wanted === 'number' ? wanted : backoff(times)
  }
}

/** From 50 ms, up to 2 s. */
export function backoff(times: number): number {
  return Math.min(times * 50, LONGEST_BACKOFF_MS)
}
