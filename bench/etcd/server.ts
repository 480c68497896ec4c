/** A throwaway server that all contenders of a run share. */
import { type EtcdServer, startEtcd } from '../../test/support/servers/etcd-server.js'

/** What the runs leave behind would fill the server otherwise. */
const QUOTA_BYTES = 4 * 1024 * 1024 * 1024

export class Server {
  readonly url: string
  readonly #server: EtcdServer

  /** It ends with this process at the latest. */
  static async start(): Promise<Server> {
    return new Server(
      await startEtcd({ onDisk: true, heartbeatMs: 100, electionTimeoutMs: 1_000, quotaBytes: QUOTA_BYTES }),
    )
  }

  private constructor(server: EtcdServer) {
    this.#server = server
    this.url = server.url
  }

  get port(): number {
    return this.#server.port
  }

  /** An empty server, without a past. */
  async clear(): Promise<void> {
    const { gateway } = this.#server
    await gateway.deletePrefix()
    for (const lease of await gateway.leases()) await gateway.revoke(lease)
    await gateway.compact()
  }

  /** For the head of the report. */
  async version(): Promise<string> {
    return (await this.#server.gateway.call('maintenance/status')).version
  }

  async stop(): Promise<void> {
    await this.#server.stop()
  }
}
