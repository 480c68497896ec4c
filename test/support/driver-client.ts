import type { Backend } from 'millrace'
import type { Claim, ClaimRequest, QueueDriver, RequestToken } from '../../src/driver.js'

let sessions = 0

/** A driver with the tokens and defaults filled in, for tests of a backend to add to. */
export class DriverClient {
  readonly backend: Backend
  readonly driver: QueueDriver
  readonly session: string
  #seq = 0

  constructor(backend: Backend, queue: string) {
    sessions += 1
    this.session = `session-${sessions}`
    this.backend = backend
    this.driver = backend.open(queue, { close: () => this.driver.close() })
  }

  token(): RequestToken {
    this.#seq += 1
    return { session: this.session, seq: this.#seq, floor: this.#seq }
  }

  async claim(max = 1, request: Partial<ClaimRequest> = {}): Promise<readonly Claim[]> {
    const token = this.token()
    return (await this.driver.claim({ token, max, leaseMs: 30_000, take: false, consumer: 'c', ...request })).claims
  }

  /** Claims one message, which must be there. */
  async one(request: Partial<ClaimRequest> = {}): Promise<Claim> {
    const [claim] = await this.claim(1, request)
    if (claim === undefined) throw new Error('nothing was ready')
    return claim
  }

  async stats() {
    return this.driver.stats()
  }
}
