import type { Observable } from 'rxjs'
import type { Backend, BackendOwner, DriverFeatures, Hint, Reply } from '../../driver.js'
import { replied } from '../../driver.js'
import { Connection, type Target } from './connection.js'
import { type DriverHost, MAX_BATCH, MAX_BATCH_BYTES, RedisDriver } from './driver.js'
import { Hints } from './hints.js'
import { channelOf, prefixOf } from './keys.js'
import { runScript } from './script.js'
import { Turns } from './turn.js'

const FEATURES: DriverFeatures = {
  durable: true,
  multiProcess: true,
  // A publication may be lost while reconnecting.
  exactHints: false,
  serverTime: true,
  ordered: true,
  groups: false,
  partitions: false,
  ownTransactions: false,
  leaseStepMs: 1,
  maxBatch: MAX_BATCH,
  maxBatchBytes: MAX_BATCH_BYTES,
}

/** The queues of one server or cluster. Connects at first use and lets go when the last queue closes. */
export class RedisBackend implements Backend, DriverHost {
  readonly name = 'redis'
  readonly features = FEATURES
  usable = true

  readonly #hashTag: string | undefined
  readonly #connection: Connection
  readonly #hints: Hints
  readonly #turns = new Map<string, Turns>()
  readonly #queues = new Map<string, string>()
  readonly #owners = new Map<RedisDriver, BackendOwner>()
  #closing: Promise<void> | undefined

  constructor(target: Target, hashTag: string | undefined) {
    this.#hashTag = hashTag
    this.#connection = new Connection(target)
    this.#hints = new Hints(() => this.#connection.another())
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
      turns = new Turns(
        (args) => runScript(this.#connection.client, prefix, args),
        (other) => this.queueOf(other),
      )
      this.#turns.set(prefix, turns)
    }
    return turns
  }

  prefixOf(queue: string): string {
    const prefix = prefixOf(queue, this.#hashTag)
    this.#queues.set(prefix, queue)
    return prefix
  }

  queueOf(prefix: string): string {
    return this.#queues.get(prefix) ?? prefix
  }

  hintsOf(queue: string): Observable<Hint> {
    return this.#hints.of(channelOf(this.prefixOf(queue)))
  }

  letGo(driver: RedisDriver): Reply<void> {
    this.#owners.delete(driver)
    if (this.#owners.size === 0) this.#letGoOfServer()
    return replied(undefined)
  }

  #letGoOfServer(): void {
    this.#hints.close()
    this.#connection.close()
  }
}
