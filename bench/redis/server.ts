/** A throwaway server that all contenders of a run share. */
import { Redis } from 'ioredis'
import { type RedisServer, startRedis } from '../../test/support/servers/redis-server.js'
import type { Amounts } from '../runner.js'
import { cpuUsOf, type Info, infoOf } from './info.js'
import type { Address } from './store.js'

export class Server {
  readonly address: Address
  readonly admin: Redis
  readonly #server: RedisServer

  /** It ends with this process at the latest. */
  static async start(): Promise<Server> {
    return new Server(await startRedis())
  }

  private constructor(server: RedisServer) {
    this.#server = server
    this.address = { host: '127.0.0.1', port: server.port }
    this.admin = new Redis({ ...this.address, maxRetriesPerRequest: null })
    this.admin.on('error', () => {})
  }

  /** An empty server; scripts stay known to it. */
  async clear(): Promise<void> {
    await this.admin.flushall('SYNC')
  }

  async info(): Promise<Info> {
    return infoOf(await this.admin.info())
  }

  /** For the head of the report. */
  async version(): Promise<string> {
    return (await this.info()).get('redis_version') ?? 'unknown'
  }

  async stop(): Promise<void> {
    this.admin.disconnect()
    await this.#server.stop()
  }
}

/** What a piece of work costs: processor time of the server and of this process, for each of `operations`. */
export async function costOf<R>(server: Server, operations: number, work: () => Promise<R>): Promise<[R, Amounts]> {
  const before = await server.info()
  const own = process.cpuUsage()
  const result = await work()
  const { user, system } = process.cpuUsage(own)
  const serverUs = cpuUsOf(await server.info()) - cpuUsOf(before)
  return [
    result,
    { 'server CPU µs per message': serverUs / operations, 'client CPU µs per message': (user + system) / operations },
  ]
}
