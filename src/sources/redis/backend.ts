import type { Observable } from 'rxjs'
import type { Backend, BackendOwner, DriverFeatures, Hint, Reply } from '../../driver.js'
import { replied } from '../../driver.js'
import { BackendUnavailableError } from '../../errors.js'
import type { RedisClient } from './client.js'
import { Connection } from './connection.js'
import { type DriverHost, MAX_BATCH, MAX_BATCH_BYTES, RedisDriver } from './driver.js'
import { Hints } from './hints.js'
import { channelOf, type KeySpace, prefixOf, queueIn, tagOf } from './keys.js'
import { scripts } from './script.js'
import type { Target } from './target.js'
import { type Call, Turns } from './turn.js'

const FEATURES: DriverFeatures = {
  durable: true,
  multiProcess: true,
  // A publication may be lost while reconnecting.
  exactHints: false,
  serverTime: true,
  ordered: true,
  pipelined: true,
  groups: false,
  partitions: false,
  ownTransactions: false,
  leaseStepMs: 1,
  maxBatch: MAX_BATCH,
  maxBatchBytes: MAX_BATCH_BYTES,
}

/** How long a change may take to reach the replicas that are waited for, before it is asked for again. */
const REPLICATION_MS = 1_000

/** The queues of one server or cluster. Connects at first use and lets go when the last queue closes. */
export class RedisBackend implements Backend, DriverHost {
  readonly name = 'redis'
  readonly features = FEATURES
  usable = true

  readonly #target: Target
  readonly #space: KeySpace
  readonly #replicas: number
  readonly #connection: Connection
  readonly #hints: Hints
  readonly #turns = new Map<string, Turns>()
  readonly #owners = new Map<RedisDriver, BackendOwner>()
  #closing: Promise<void> | undefined

  constructor(target: Target, hashTag: string | undefined, replicas: number) {
    this.#target = target
    this.#space = { keyPrefix: target.keyPrefix, hashTag }
    this.#replicas = replicas
    this.#connection = new Connection(target)
    this.#hints = new Hints(() => this.#subscriber())
  }

  open(queue: string, owner: BackendOwner): RedisDriver {
    const driver = new RedisDriver(queue, this)
    if (this.#closing === undefined) this.#owners.set(driver, owner)
    else void driver.close()
    return driver
  }

  /** Lets every owner close in its own way, which needs the server, and only then lets go of it. */
  close(): Promise<void> {
    this.#closing ??= Promise.allSettled([...this.#owners.values()].map(async (owner) => owner.close())).then(() => {
      for (const driver of [...this.#owners.keys()]) void driver.close()
      this.usable = false
      this.#letGoOfServer()
    })
    return this.#closing
  }

  turnsOf(queue: string): Turns {
    const prefix = this.prefixOf(queue)
    let turns = this.#turns.get(prefix)
    if (turns === undefined) {
      turns = new Turns(prefix, this.#call, (other) => this.queueOf(other))
      this.#turns.set(prefix, turns)
    }
    return turns
  }

  prefixOf(queue: string): string {
    return prefixOf(this.#space, queue)
  }

  queueOf(prefix: string): string {
    return queueIn(this.#space, prefix)
  }

  /** In a cluster only what shares a slot can change in one step. */
  canReach(from: string, to: string): boolean {
    return !this.#target.isCluster || tagOf(this.prefixOf(from)) === tagOf(this.prefixOf(to))
  }

  hintsOf(queue: string): Observable<Hint> {
    return this.#hints.of(channelOf(this.prefixOf(queue)))
  }

  letGo(driver: RedisDriver): Reply<void> {
    this.#owners.delete(driver)
    this.#forget(driver.queue)
    if (this.#owners.size === 0) this.#letGoOfServer()
    return replied(undefined)
  }

  readonly #call: Call = (script, keys, args, bytes) =>
    this.#connection.use(
      (client) => {
        const replies = scripts[script].run(client, keys, args)
        return this.#replicas === 0 ? replies : this.#replicated(client, replies)
      },
      this.#target.isCluster ? tagOf(keys[0] ?? '') : '',
      bytes,
    )

  async #replicated(client: RedisClient, replies: Promise<unknown[]>): Promise<unknown[]> {
    // Asked after the answer: a script that the server did not know runs later than it was sent.
    const answer = await replies
    const reached = (await client.callBuffer('WAIT', this.#replicas, REPLICATION_MS)) as number
    if (reached >= this.#replicas) return answer
    throw new BackendUnavailableError(`a change has reached ${reached} of ${this.#replicas} replicas`)
  }

  async #subscriber(): Promise<RedisClient> {
    return this.#target.subscriber(this.#target.isCluster ? await this.#connection.ready() : undefined)
  }

  #forget(queue: string): void {
    for (const driver of this.#owners.keys()) if (driver.queue === queue) return
    this.#turns.delete(this.prefixOf(queue))
  }

  #letGoOfServer(): void {
    this.#hints.close()
    this.#connection.close()
  }
}
