/**
 * Looks at a server once, before it is used: whether it can do what the scripts ask of it, and whether it may throw
 * away what they store.
 */
import { UnsupportedError } from '../../errors.js'
import type { RedisClient } from './client.js'

/** LPOP of many came with it. */
const OLDEST_VERSION = [6, 2] as const

/** Rejects for a server that is too old, and warns of one that evicts keys. */
export async function checkServer(client: RedisClient): Promise<void> {
  const servers = client.nodes?.('master') ?? [client]
  await Promise.all(servers.map(checkOne))
}

async function checkOne(server: RedisClient): Promise<void> {
  const info = await infoOf(server)
  const version = /^redis_version:(\S+)/m.exec(info)?.[1]
  if (version !== undefined && isTooOld(version)) {
    const message = `the redis backend needs a server of version ${OLDEST_VERSION.join('.')} or later, not ${version}`
    throw new UnsupportedError('redis', 'oldServers', message)
  }
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1]
  if (policy !== undefined && policy !== 'noeviction' && limitIn(info) > 0) warnOf(policy)
}

/** A user that may not ask gets no check; nothing else depends on it. */
async function infoOf(server: RedisClient): Promise<string> {
  try {
    return String(await server.callBuffer('INFO'))
  } catch (error) {
    if (error instanceof Error && /^(NOPERM|ERR)/.test(error.message)) return ''
    throw error
  }
}

function isTooOld(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major < OLDEST_VERSION[0] || (major === OLDEST_VERSION[0] && minor < OLDEST_VERSION[1])
}

function limitIn(info: string): number {
  return Number(/^maxmemory:(\d+)/m.exec(info)?.[1] ?? 0)
}

function warnOf(policy: string): void {
  process.emitWarning(
    `the Redis server has maxmemory-policy ${policy}: when its memory is full it may throw away keys of queues, and ` +
      'with them messages. Set it to noeviction.',
    { type: 'MillraceWarning', code: 'MILLRACE_REDIS_EVICTION' },
  )
}
