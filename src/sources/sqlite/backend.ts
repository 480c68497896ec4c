import type { Observable } from 'rxjs'
import type { Backend, BackendOwner, DriverFeatures, Hint, OwnTransaction } from '../../driver.js'
import { Eventual } from '../../eventual.js'
import { SessionBook } from '../local/sessions.js'
import { CAPS } from './admission.js'
import { Connection, type Durability, isInMemory, type Target } from './connection.js'
import { type DriverHost, SqliteDriver } from './driver.js'
import { asBackendError } from './errors.js'
import { GroupCommit, type Withdrawal } from './group-commit.js'
import { Hints } from './hints.js'
import { ownTransactionOf } from './own-transaction.js'
import type { Transaction } from './transaction.js'

export interface BackendOptions {
  readonly durability: Durability
  readonly busyTimeoutMs: number
}

/** The queues of one file. Connects at first use and lets go when the last queue closes. */
export class SqliteBackend implements Backend, DriverHost {
  readonly name = 'sqlite'
  readonly features: DriverFeatures
  readonly sessions = new SessionBook()
  usable = true

  readonly #target: Target
  readonly #connection: Connection
  readonly #hints: Hints
  readonly #transactions: GroupCommit
  readonly #owners = new Map<SqliteDriver, BackendOwner>()
  #closing: Promise<void> | undefined

  constructor(target: Target, { durability, busyTimeoutMs }: BackendOptions) {
    this.features = featuresOf(target)
    this.#target = target
    this.#connection = new Connection(target, durability)
    this.#hints = new Hints({
      statements: () => this.#connection.statements,
      asError: (error) => asBackendError(error, target.path),
      shared: target.shared !== undefined,
    })
    this.#transactions = new GroupCommit({
      path: target.path,
      statements: () => this.#connection.statements,
      busyTimeoutMs,
      committed: (queues) => this.#hints.committed(queues),
    })
  }

  open(queue: string, owner: BackendOwner): SqliteDriver {
    const driver = new SqliteDriver(queue, this)
    if (this.#closing === undefined) this.#owners.set(driver, owner)
    else void driver.close()
    return driver
  }

  /** Lets every owner close in its own way, which needs the file, and only then lets go of it. */
  close(): Promise<void> {
    this.#closing ??= Promise.allSettled([...this.#owners.values()].map(async (owner) => owner.close())).then(() =>
      this.#drop(),
    )
    return this.#closing
  }

  ask<T>(work: (tx: Transaction) => T, withdrawal?: Withdrawal<T>): Eventual<T> {
    return this.#transactions.ask(work, withdrawal)
  }

  hintsOf(queue: string): Observable<Hint> {
    return this.#hints.of(queue)
  }

  watch(queue: string, id: string): void {
    this.#hints.watch(queue, id)
  }

  ownTransactionOf(queue: string): OwnTransaction {
    const { path, shared } = this.#target
    return ownTransactionOf(queue, path, (database) => database === shared)
  }

  letGo(driver: SqliteDriver): Eventual<void> {
    this.#owners.delete(driver)
    if (this.#owners.size > 0 || isInMemory(this.#target)) return Eventual.resolved(undefined)
    return this.#transactions.settled().then(() => {
      if (this.#owners.size === 0) this.#connection.close()
    })
  }

  async #drop(): Promise<void> {
    for (const driver of [...this.#owners.keys()]) await driver.close()
    await this.#transactions.settled()
    this.usable = false
    this.#connection.close()
  }
}

function featuresOf(target: Target): DriverFeatures {
  const inMemory = isInMemory(target)
  return {
    durable: !inMemory,
    multiProcess: !inMemory,
    exactHints: true,
    serverTime: true,
    ordered: true,
    groups: false,
    partitions: false,
    // No other connection reaches a database in memory that is ours alone.
    ownTransactions: !inMemory || target.shared !== undefined,
    leaseStepMs: 1,
    maxBatch: CAPS.maxBatch,
    maxBatchBytes: CAPS.maxBatchBytes,
  }
}
