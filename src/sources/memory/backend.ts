import type { SchedulerLike } from 'rxjs'
import type { Backend, BackendOwner, DriverFeatures } from '../../driver.js'
import { Eventual } from '../../eventual.js'
import { CAPS } from './admission.js'
import { Clock } from './clock.js'
import { type DriverHost, MemoryDriver } from './driver.js'
import { QueueStore } from './store.js'

const FEATURES: DriverFeatures = {
  durable: false,
  multiProcess: false,
  exactHints: true,
  serverTime: true,
  // It answers at once: there is nothing to be gained.
  ordered: false,
  groups: false,
  partitions: false,
  ownTransactions: false,
  leaseStepMs: 1,
  maxBatch: CAPS.maxBatch,
  maxBatchBytes: CAPS.maxBatchBytes,
}

/** All queues of one memory backend. A queue's messages stay here when its drivers are closed. */
export class MemoryBackend implements Backend {
  readonly name = 'memory'
  readonly features = FEATURES
  declare readonly scheduler?: SchedulerLike

  readonly #clock: Clock
  readonly #stores = new Map<string, QueueStore>()
  readonly #owners = new Map<MemoryDriver, BackendOwner>()
  readonly #host: DriverHost
  #usable = true
  #closing: Eventual<void> | undefined

  constructor(scheduler: SchedulerLike | undefined) {
    if (scheduler !== undefined) this.scheduler = scheduler
    this.#clock = new Clock(scheduler)
    const isUsable = () => this.#usable
    this.#host = {
      get usable() {
        return isUsable()
      },
      storeOf: (queue) => this.#storeOf(queue),
      letGo: (driver) => void this.#owners.delete(driver),
    }
  }

  open(queue: string, owner: BackendOwner): MemoryDriver {
    const driver = new MemoryDriver(this.#storeOf(queue), this.#host)
    if (this.#closing === undefined) this.#owners.set(driver, owner)
    else void driver.close()
    return driver
  }

  /** Lets every owner close in its own way, which needs the queues, and only then drops them. */
  close(): Eventual<void> {
    if (this.#closing !== undefined) return this.#closing
    this.#closing = new Eventual<void>()
    const owners = [...this.#owners.values()]
    this.#closing.resolve(Eventual.all(owners.map(closeOwner)).then(() => this.#drop()))
    return this.#closing
  }

  #storeOf(queue: string): QueueStore {
    let store = this.#stores.get(queue)
    if (store === undefined) {
      store = new QueueStore(queue, this.#clock)
      this.#stores.set(queue, store)
    }
    return store
  }

  #drop(): void {
    for (const driver of [...this.#owners.keys()]) driver.close()
    this.#usable = false
    this.#stores.clear()
  }
}

/** An owner that fails to close has closed as far as it can; the others and the store must go on. */
function closeOwner(owner: BackendOwner): Eventual<void> {
  const done = () => undefined
  try {
    return Eventual.from(owner.close()).then(done, done)
  } catch {
    return Eventual.resolved(undefined)
  }
}
