import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { until } from '../wait.js'
import { EtcdGateway } from './etcd-gateway.js'
import { type PortReservation, reservePort } from './free-ports.js'
import { type GuardedProcess, spawnGuarded } from './guarded-process.js'

const HOST = '127.0.0.1'
/** Whoever has another build names it here; `scripts/setup-servers.mjs` knows the variable as well. */
const BINARY = process.env['MILLRACE_ETCD_SERVER'] || 'etcd'
const START_DEADLINE_MS = 20_000
/** Where Linux keeps files in memory: there nobody waits for a disk, and data outlive the server, which is all tests ask. */
const MEMORY = '/dev/shm'
/** The peer port is the one behind the port for clients. */
const PEER_OFFSET = 1

/** The user that `auth` makes, who may do everything. */
export const ROOT = { name: 'root', password: 'secret' } as const

export interface EtcdServerOptions {
  /** Added to the command line, after all else: `['--max-txn-ops', '8']`. */
  readonly args?: readonly string[]
  /** Data are on a disk, and each change is waited for until it is there: for who measures. */
  readonly onDisk?: boolean
  /** A tenth of what etcd has by default, so that a leader is there and missed soon. */
  readonly heartbeatMs?: number
  readonly electionTimeoutMs?: number
  /** When the data are larger, the server takes no more and raises the alarm NOSPACE. */
  readonly quotaBytes?: number
  /** Makes {@link ROOT} and turns authentication on. A token ends so many seconds after its last use. */
  readonly auth?: { readonly tokenTtlS?: number }
  /** Of a cluster; a server by itself needs none. */
  readonly membership?: EtcdMembership
}

export interface EtcdMembership {
  readonly token: string
  readonly name: string
  /** The URL at which the others reach this one. */
  readonly peerUrl: string
  /** `name=url` of all members. */
  readonly initialCluster: string
}

/** Two ports, the second of them for peers. */
export function reserveEtcdPorts(): Promise<PortReservation> {
  return reservePort([PEER_OFFSET])
}

export function peerPortOf(port: number): number {
  return port + PEER_OFFSET
}

/**
 * Starts an etcd server of its own and fulfils when it takes requests. It ends with this process at the latest.
 *
 * @example
 * const server = await startEtcd({ quotaBytes: 16 * 1024 * 1024 })
 * await server.gateway.put('a', '1')
 * await server.restart()
 * await server.stop()
 */
export async function startEtcd(options: EtcdServerOptions = {}): Promise<EtcdServer> {
  for (;;) {
    const server = new EtcdServer(options, await reserveEtcdPorts())
    try {
      await server.restart()
      if (options.auth !== undefined) await turnAuthOn(server.gateway)
      return server
    } catch (error) {
      await server.stop()
      // Somebody who does not reserve ports was faster.
      if (!/address already in use/i.test(String(error))) throw error
    }
  }
}

/** An etcd server in a process of its own. All its methods may be called in any state. */
export class EtcdServer {
  readonly port: number
  /** What clients take: `etcdBackend({ hosts: server.url })`. */
  readonly url: string
  /** The data folder. */
  readonly dir: string
  /** Asks this very server. */
  readonly gateway: EtcdGateway
  readonly #options: EtcdServerOptions
  readonly #reservation: PortReservation
  #process: GuardedProcess | undefined

  /** Not running yet: {@link startEtcd} is the way to one. */
  constructor(options: EtcdServerOptions, reservation: PortReservation) {
    this.port = reservation.port
    this.url = `http://${HOST}:${this.port}`
    const folder = !options.onDisk && existsSync(MEMORY) ? MEMORY : tmpdir()
    this.dir = mkdtempSync(join(folder, 'millrace-etcd-'))
    this.gateway = new EtcdGateway(this.port)
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

  get name(): string {
    return this.#options.membership?.name ?? basename(this.dir)
  }

  /** Ends it at once, as `kill -9` does, and keeps the data. Fulfils when it is gone. */
  async kill(): Promise<void> {
    // Also ends a frozen one.
    this.#process?.signal('SIGKILL')
    await this.#process?.exited
  }

  /**
   * Starts it again on the same ports and data, having killed it if it runs. Fulfils when it takes requests, so not
   * before there is a majority.
   */
  async restart(): Promise<void> {
    await this.kill()
    const guarded = await spawnGuarded(BINARY, this.#commandLine(), this.dir)
    this.#process = guarded
    await until(`etcd on port ${this.port} takes requests`, () => this.#serves(guarded), START_DEADLINE_MS)
  }

  /** Stops it for good and removes its data. */
  async stop(): Promise<void> {
    await this.kill()
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 10 })
    await this.#reservation.release()
  }

  /** Keeps it from running, with its connections open, until `thaw`. */
  freeze(): void {
    this.#process?.signal('SIGSTOP')
  }

  thaw(): void {
    this.#process?.signal('SIGCONT')
  }

  #commandLine(): string[] {
    const { heartbeatMs = 10, electionTimeoutMs = 100, quotaBytes, auth, membership } = this.#options
    const ownPeerUrl = `http://${HOST}:${peerPortOf(this.port)}`
    const peerUrl = membership?.peerUrl ?? ownPeerUrl
    const settings = {
      name: this.name,
      'data-dir': this.dir,
      'listen-client-urls': this.url,
      'advertise-client-urls': this.url,
      'listen-peer-urls': ownPeerUrl,
      'initial-advertise-peer-urls': peerUrl,
      'initial-cluster': membership?.initialCluster ?? `${this.name}=${peerUrl}`,
      'initial-cluster-token': membership?.token ?? this.name,
      'heartbeat-interval': heartbeatMs,
      'election-timeout': electionTimeoutMs,
      ...(quotaBytes !== undefined && { 'quota-backend-bytes': quotaBytes }),
      ...(auth !== undefined && { 'bcrypt-cost': 4 }),
      ...(auth?.tokenTtlS !== undefined && { 'auth-token-ttl': auth.tokenTtlS }),
    }
    const flags = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
    return [...flags, ...(this.#options.args ?? [])]
  }

  /** Whether this very process answers, and with the consent of a majority. */
  async #serves(guarded: GuardedProcess): Promise<boolean> {
    if (guarded.exitCode !== undefined) {
      throw new Error(`${BINARY} ended with ${guarded.exitCode}: ${guarded.output().trim()}`)
    }
    // Another process may have taken the port, and this one be about to find out.
    const { members = [] } = await this.gateway.call('cluster/member/list', {}, 1_000).catch(() => ({}))
    if (!members.some(({ name }: { name?: string }) => name === this.name)) return false
    return this.gateway.count('?').then(() => true, asksForUser)
  }
}

/** A member that wants to know who asks has got as far as to ask: it takes requests. */
export function asksForUser(error: Error): boolean {
  return /user name is empty|invalid auth token/.test(error.message)
}

async function turnAuthOn(gateway: EtcdGateway): Promise<void> {
  await gateway.call('auth/user/add', ROOT)
  await gateway.call('auth/role/add', { name: 'root' })
  await gateway.call('auth/user/grant', { user: ROOT.name, role: 'root' })
  await gateway.call('auth/enable')
  await gateway.authenticate(ROOT.name, ROOT.password)
}
