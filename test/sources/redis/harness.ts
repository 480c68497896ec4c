import { Redis, type RedisOptions } from 'ioredis'
import { type Backend, Queue, type QueueOptions } from 'millrace'
import { type RedisBackendOptions, type RedisTarget, redisBackend } from 'millrace/redis'
import { onTestFinished } from 'vitest'
import type { Claim, NewMessage, SettleCommand, SettleState } from '../../../src/driver.js'
import { DriverClient } from '../../support/driver-client.js'
import { type RedisServer, type RedisServerOptions, startRedis } from '../../support/servers/redis-server.js'
import { message } from '../memory/harness.js'

/** A server of the test's own, stopped when it ends. */
export async function freshServer(options: RedisServerOptions = {}): Promise<RedisServer> {
  const server = await startRedis(options)
  onTestFinished(() => server.stop())
  return server
}

/** A backend of its own, as another process would have; closed when the test ends. */
export function backendOn(target: RedisTarget, options: RedisBackendOptions = {}): Backend {
  const backend = redisBackend(target, options)
  onTestFinished(async () => backend.close())
  return backend
}

/** A connection for looking at keys, closed when the test ends. */
export function inspect(server: RedisServer, options: RedisOptions = {}): Redis {
  const redis = new Redis(server.url, options)
  // The commands reject with it.
  redis.on('error', () => {})
  onTestFinished(() => redis.disconnect())
  return redis
}

/** The numbers in the `state` of a queue, in the order in which lua/head.lua packs them. */
const STATE = [
  ...(['bytes', 'readyBytes', 'arrivals', 'latest', 'fences', 'deaths', 'paused', 'lease'] as const),
  ...(['ranking', 'audited', 'tidyAt', 'nextAt', 'endedSince'] as const),
]
type State = Record<(typeof STATE)[number], number>

export async function stateOf(redis: Redis, queue: string): Promise<State> {
  const packed = await redis.hgetBuffer(`millrace:{${queue}}:q`, 'state')
  return Object.fromEntries(STATE.map((name, index) => [name, packed?.readDoubleBE(8 * index) ?? 0])) as State
}

/** As if the scripts had written it. */
export async function changeState(redis: Redis, queue: string, changes: Partial<State>): Promise<void> {
  const state = { ...(await stateOf(redis, queue)), ...changes }
  const packed = Buffer.alloc(8 * STATE.length)
  for (const [index, name] of STATE.entries()) packed.writeDoubleBE(state[name], 8 * index)
  await redis.hset(`millrace:{${queue}}:q`, 'state', packed)
}

let names = 0

/** A name that no other queue of this file has. */
function freshName(): string {
  names += 1
  return `q${names}`
}

/** A queue, closed when the test ends. */
export function queueOn<T = string>(
  backend: Backend,
  options: Partial<QueueOptions<T>> = {},
  name = freshName(),
): Queue<T> {
  const queue = new Queue<T>(name, { backend, ...options })
  onTestFinished(async () => {
    await queue.close({ graceMs: 0 })
  })
  return queue
}

/** Every key of the server, in order. */
export async function allKeys(redis: Redis): Promise<string[]> {
  return (await redis.keys('*')).toSorted()
}

/** A driver with the tokens and defaults filled in, on a queue of its own if none is named. */
export class Client extends DriverClient {
  readonly name: string

  constructor(backend: Backend, name = freshName()) {
    super(backend, name)
    this.name = name
  }

  /** A message with defaults; a string is its id, and its payload as JSON, so that a queue can read it. */
  async enqueue(...messages: (string | Partial<NewMessage>)[]) {
    const batch = messages.map((each) => {
      const { id = 'm', ...more } = typeof each === 'string' ? { id: each } : each
      return message({ id, bytes: Buffer.from(JSON.stringify(id)), ...more })
    })
    return this.driver.enqueue(batch, this.token())
  }

  async settle(...commands: SettleCommand[]): Promise<SettleState[]> {
    return (await this.driver.settle(commands, this.token())).map(({ state }) => state)
  }

  async ack(...claims: readonly Pick<Claim, 'id' | 'token'>[]): Promise<SettleState[]> {
    return this.settle(...claims.map(({ id, token }) => ({ kind: 'ack', id, token }) as const))
  }

  async bury(...claims: readonly Pick<Claim, 'id' | 'token'>[]): Promise<SettleState[]> {
    return this.settle(...claims.map(({ id, token }) => ({ kind: 'dead-letter', id, token, reason: 'bad' }) as const))
  }

  /** Claims and acks all that is ready; the ids in order. */
  async drain(step = 100): Promise<string[]> {
    const ids: string[] = []
    for (let claims = await this.claim(step); claims.length > 0; claims = await this.claim(step)) {
      ids.push(...claims.map(({ id }) => id))
      await this.ack(...claims)
    }
    return ids
  }

  /** Does what is due, then looks; for polling. */
  async swept<T>(look: () => PromiseLike<T>): Promise<T> {
    await this.driver.sweep(10)
    return look()
  }

  async statsAfterSweep() {
    return this.swept(() => this.driver.stats())
  }
}

/** What is thrown or rejected with; fails when nothing is. */
export async function failureOf(act: () => unknown): Promise<Error> {
  try {
    await act()
  } catch (error) {
    return error as Error
  }
  throw new Error('nothing was thrown')
}
