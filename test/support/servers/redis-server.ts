import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { until } from '../wait.js'
import { type PortReservation, reservePort } from './free-ports.js'
import { type GuardedProcess, spawnGuarded } from './guarded-process.js'

const HOST = '127.0.0.1'
/** Whoever has Valkey, or a build of their own, names it here; `scripts/setup-servers.mjs` knows the variable as well. */
const BINARY = process.env['MILLRACE_REDIS_SERVER'] || 'redis-server'
const START_DEADLINE_MS = 20_000
const COMMAND_TIMEOUT_MS = 5_000
const BUS_OFFSET = 10_000

export interface RedisServerOptions {
  /** Added to the command line, after all else: `['--maxmemory', '1mb']`. */
  readonly args?: readonly string[]
  /** The text of a configuration file, for what the command line cannot say. The server may write to the file. */
  readonly config?: string
  /** A free port that is reserved for this server when not given. */
  readonly port?: number
  /** A data folder of the caller's, which stays when the server is stopped. Otherwise it is a throwaway one. */
  readonly keep?: string
  /** Whether acknowledged changes outlive `kill` and `restart`. Without it a server comes back empty. */
  readonly appendOnly?: boolean
  /** Makes it a node of a cluster, which has a second port. */
  readonly cluster?: boolean
}

/**
 * Starts a Redis server of its own and fulfils when it answers. It ends with this process at the latest.
 *
 * @example
 * const server = await startRedis({ appendOnly: true })
 * await server.kill()
 * await server.restart()
 * await server.stop()
 */
export async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  for (;;) {
    const reservation = options.port === undefined ? await reservePort(options.cluster ? [BUS_OFFSET] : []) : undefined
    const server = new RedisServer(options, reservation)
    try {
      await server.restart()
      return server
    } catch (error) {
      await server.stop()
      // Somebody who does not reserve ports was faster.
      if (reservation !== undefined && /address already in use/i.test(String(error))) continue
      throw error
    }
  }
}

/** A Redis server in a process of its own. All its methods may be called in any state. */
export class RedisServer {
  readonly port: number
  readonly url: string
  /** The data folder. */
  readonly dir: string
  readonly #options: RedisServerOptions
  readonly #reservation: PortReservation | undefined
  #process: GuardedProcess | undefined

  /** Not running yet: {@link startRedis} is the way to one. */
  constructor(options: RedisServerOptions, reservation: PortReservation | undefined) {
    this.port = options.port ?? reservation?.port ?? 0
    this.url = `redis://${HOST}:${this.port}`
    this.dir = options.keep ?? mkdtempSync(join(tmpdir(), 'millrace-redis-'))
    this.#options = options
    this.#reservation = reservation
  }

  /** Of the process that runs now or ran last. */
  get pid(): number {
    return this.#process?.pid ?? 0
  }

  get running(): boolean {
    return this.#process !== undefined && this.#process.exitCode === undefined
  }

  /** The end of what the server has logged. */
  get log(): string {
    return this.#process?.output() ?? ''
  }

  /** Ends it at once, as `kill -9` does, and keeps the data. Fulfils when it is gone. */
  async kill(): Promise<void> {
    // Also ends a frozen one.
    this.#process?.signal('SIGKILL')
    await this.#process?.exited
  }

  /** Starts it again on the same port and data, having killed it if it runs. Fulfils when it answers. */
  async restart(): Promise<void> {
    await this.kill()
    const throwaway = this.#options.keep === undefined ? this.dir : undefined
    const guarded = await spawnGuarded(BINARY, this.#commandLine(), throwaway)
    this.#process = guarded
    await until(`redis-server on port ${this.port} answers`, () => this.#answers(guarded), START_DEADLINE_MS)
  }

  /** Stops it for good and removes throwaway data. */
  async stop(): Promise<void> {
    // No gentler than `kill`: what was acknowledged has been written, and a shutdown would wait for replicas.
    await this.kill()
    // A child that rewrites the append-only file may outlive it for a moment.
    if (this.#options.keep === undefined) rmSync(this.dir, { recursive: true, force: true, maxRetries: 10 })
    await this.#reservation?.release()
  }

  /** Keeps it from running, with its connections open, until `thaw`. */
  freeze(): void {
    this.#process?.signal('SIGSTOP')
  }

  thaw(): void {
    this.#process?.signal('SIGCONT')
  }

  /** Runs one command over a connection of its own. Rejects when there is no answer within 5 s. */
  async command(name: string, ...args: readonly (string | number | Buffer)[]): Promise<unknown> {
    const client = new Redis(this.port, HOST, {
      commandTimeout: COMMAND_TIMEOUT_MS,
      enableReadyCheck: false,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    })
    // The command rejects with it.
    client.on('error', () => {})
    try {
      return await client.call(name, ...args)
    } finally {
      client.disconnect()
    }
  }

  #commandLine(): string[] {
    const { config, appendOnly = false, cluster = false, args = [] } = this.#options
    const file = join(this.dir, 'redis.conf')
    // Kept when it is there: sentinels write what they have learnt into theirs.
    if (config !== undefined && !existsSync(file)) writeFileSync(file, config)
    const settings = {
      port: this.port,
      bind: HOST,
      dir: this.dir,
      save: '',
      appendonly: appendOnly ? 'yes' : 'no',
      ...(cluster && { 'cluster-enabled': 'yes' }),
    }
    const flags = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
    return [...(config === undefined ? [] : [file]), ...flags, ...args]
  }

  /** Whether this very process answers: another one may have taken the port, and this one be about to find out. */
  async #answers(guarded: GuardedProcess): Promise<boolean> {
    if (guarded.exitCode !== undefined) {
      throw new Error(`${BINARY} ended with ${guarded.exitCode}: ${guarded.output().trim()}`)
    }
    const info = await this.command('INFO', 'server').catch(() => '')
    if (!String(info).includes(`process_id:${guarded.pid}\r\n`)) return false
    const pong = await this.command('PING').catch(() => '')
    return pong === 'PONG'
  }
}
