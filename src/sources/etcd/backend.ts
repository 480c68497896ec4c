import type { Backend, BackendOwner, DriverFeatures } from '../../driver.js'
import { ClosedError } from '../../errors.js'
import type { EtcdClient } from './client.js'
import { type DriverHost, EtcdDriver } from './driver.js'
import { MAX_BATCH, MAX_BATCH_BYTES } from './enqueueing.js'

const FEATURES: DriverFeatures = {
  durable: true,
  multiProcess: true,
  // A watch may lose events.
  exactHints: false,
  // etcd has no clock that it would tell.
  serverTime: false,
  ordered: true,
  groups: false,
  partitions: false,
  ownTransactions: false,
  // The smallest lease is two seconds.
  leaseStepMs: 1_000,
  maxBatch: MAX_BATCH,
  maxBatchBytes: MAX_BATCH_BYTES,
}

/** The queues of one cluster. Connects at first use and lets go when the last queue closes. */
export class EtcdBackend implements Backend, DriverHost {
  readonly name = 'etcd'
  readonly features = FEATURES
  usable = true
  readonly #make: () => EtcdClient
  readonly #owners = new Map<EtcdDriver, BackendOwner>()
  #client: EtcdClient | undefined
  #closing: Promise<void> | undefined

  constructor(make: () => EtcdClient) {
    this.#make = make
  }

  open(queue: string, owner: BackendOwner): EtcdDriver {
    const driver = new EtcdDriver(queue, this)
    if (this.#closing === undefined) this.#owners.set(driver, owner)
    else void driver.close()
    return driver
  }

  /** Lets every owner close in its own way, which needs the server, and only then lets go of it. */
  close(): Promise<void> {
    this.#closing ??= Promise.allSettled([...this.#owners.values()].map(async (owner) => owner.close())).then(
      async () => {
        await Promise.allSettled([...this.#owners.keys()].map(async (driver) => driver.close()))
        this.usable = false
        this.#letGoOfServer()
      },
    )
    return this.#closing
  }

  readonly client = (): EtcdClient => {
    if (!this.usable) throw new ClosedError('the etcd backend')
    this.#client ??= this.#make()
    return this.#client
  }

  letGo(driver: EtcdDriver): void {
    this.#owners.delete(driver)
    if (this.#owners.size === 0) this.#letGoOfServer()
  }

  #letGoOfServer(): void {
    this.#client?.close()
    this.#client = undefined
  }
}
