/** A throwaway server that all contenders of a run share. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { Amounts } from '../runner.js'
import { cpuUsOf, type Info, infoOf } from './info.js'
import type { Address } from './store.js'

const COMMAND = 'redis-server'
const START_MS = 5_000

export class Server {
  readonly address: Address
  readonly admin: Redis
  readonly #process: ChildProcess

  static async start(): Promise<Server> {
    const port = await freePort()
    const args = ['--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no']
    const child = spawn(COMMAND, args, { stdio: 'ignore' })
    // Also when the bench is interrupted or fails.
    process.once('exit', () => child.kill('SIGKILL'))
    const server = new Server(port, child)
    const ended = once(child, 'exit').then(() => Promise.reject(new Error(`${COMMAND} ended`)))
    const late = sleep(START_MS, undefined, { ref: false }).then(() => Promise.reject(new Error('no server in time')))
    await Promise.race([server.admin.ping(), ended, late])
    ended.catch(() => {})
    late.catch(() => {})
    return server
  }

  private constructor(port: number, child: ChildProcess) {
    this.address = { host: '127.0.0.1', port }
    this.#process = child
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

  async stop(): Promise<void> {
    this.admin.disconnect()
    const ended = once(this.#process, 'exit')
    this.#process.kill('SIGTERM')
    await ended
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

/** For the head of the report. */
export function serverVersion(): string {
  return execFileSync(COMMAND, ['--version'], { encoding: 'utf8' }).match(/v=(\S+)/)?.[1] ?? 'unknown'
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as { port: number }
  probe.close()
  await once(probe, 'close')
  return port
}
