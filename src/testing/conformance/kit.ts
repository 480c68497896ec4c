/**
 * What the parts of the conformance suite share: how a test is registered, and what it is given.
 */
import type { Backend, DriverFeatures } from '../../driver.js'
import { Queue, type QueueOptions } from '../../queue.js'
import { type FaultyBackend, faultyBackend, type InjectedFault } from '../faulty-backend.js'

/** The two functions of a test runner that the suite needs. Those of vitest, jest, mocha and node:test all fit. */
export interface TestRunner {
  describe(name: string, body: () => void): void
  it(name: string, body: () => Promise<void>): void
}

export interface ConformanceOptions extends TestRunner {
  /** The backend's name in the test titles. */
  readonly name: string
  /** A fresh backend on a store of its own; it is closed after the test. Called again within a test it gives another client of the same store, unless `fresh`. */
  readonly backend: () => Backend | Promise<Backend>
  /** Another client of the same store, as another process would have. Absent where there can be none. */
  readonly another?: (backend: Backend) => Backend | Promise<Backend>
  /**
   * The names of all keys or rows that the store keeps for messages of a queue, in whatever state they are; those of
   * the queue itself (settings, totals) left out. Absent where nobody can look into the store.
   */
  readonly leftovers?: (backend: Backend, queue: string) => Promise<readonly string[]>
}

/** What one test is given. Queues and backends that it makes are closed when it ends, however it ends. */
export interface Bench {
  readonly features: DriverFeatures
  /** The backend under test, with every call open to faults. */
  readonly backend: FaultyBackend
  /** A queue of a name of its own on the backend under test. */
  queue<T = string>(options?: Partial<QueueOptions<T>>): Queue<T>
  /**
   * Another `Queue` object of the same queue, through a client of its own where the backend can have one, or through
   * `options.backend`.
   */
  peer<T>(queue: Queue<T>, options?: Partial<QueueOptions<T>>): Promise<Queue<T>>
  /** Another client of the same store, as another process would have, with every call open to faults of its own. */
  client(): Promise<FaultyBackend>
  /** What the store still keeps of the messages of a queue; `undefined` where the suite was not told how to look. */
  leftovers<T>(queue: Queue<T>): Promise<readonly string[] | undefined>
}

/** A test of the suite: its scenario's id, a title, and the body. */
export interface Scenario {
  readonly id: string
  readonly title: string
  /** Runs only where this holds; elsewhere the title says that the backend cannot do it, and nothing is skipped in silence. */
  readonly when?: (features: DriverFeatures) => boolean
  readonly body: (bench: Bench) => Promise<void>
}

/** The scenarios of one concern. */
export interface Concern {
  readonly name: string
  readonly scenarios: readonly Scenario[]
}

/** Writes down a scenario. */
export function scenario(id: string, title: string, body: Scenario['body'], when?: Scenario['when']): Scenario {
  return { id, title, body, ...(when && { when }) }
}

/** Registers every scenario of a concern with the test runner. */
export function registerConcern(options: ConformanceOptions, concern: Concern): void {
  options.describe(concern.name, () => {
    for (const entry of concern.scenarios) {
      options.it(`${entry.id} ${entry.title}`, () => runScenario(options, entry))
    }
  })
}

async function runScenario(options: ConformanceOptions, entry: Scenario): Promise<void> {
  const bench = new OpenBench(await options.backend(), options)
  try {
    if (entry.when && !entry.when(bench.features)) return
    await entry.body(bench)
  } finally {
    await bench.close()
  }
}

let names = 0

class OpenBench implements Bench {
  readonly backend: FaultyBackend
  private readonly queues: Queue<never>[] = []
  private readonly others: Backend[] = []
  private readonly faults: InjectedFault[] = []

  constructor(
    private readonly inner: Backend,
    private readonly options: ConformanceOptions,
  ) {
    this.backend = this.faulty(inner)
  }

  get features(): DriverFeatures {
    return this.inner.features
  }

  queue<T = string>(options: Partial<QueueOptions<T>> = {}): Queue<T> {
    names += 1
    return this.keep(new Queue<T>(`conformance-${names}`, { backend: this.backend, ...options }))
  }

  async peer<T>(queue: Queue<T>, options: Partial<QueueOptions<T>> = {}): Promise<Queue<T>> {
    const backend = options.backend ?? (await this.another())
    return this.keep(new Queue<T>(queue.name, { ...options, backend }))
  }

  async client(): Promise<FaultyBackend> {
    return this.faulty(await this.another())
  }

  async leftovers<T>(queue: Queue<T>): Promise<readonly string[] | undefined> {
    return this.options.leftovers?.(this.inner, queue.name)
  }

  async close(): Promise<void> {
    for (const fault of this.faults) {
      fault.remove()
      fault.release()
    }
    await Promise.all(this.queues.map((queue) => queue.close({ graceMs: 0 })))
    for (const backend of [...this.others, this.inner]) await backend.close()
  }

  private async another(): Promise<Backend> {
    if (!this.options.another) return this.inner
    const backend = await this.options.another(this.inner)
    if (backend !== this.inner) this.others.push(backend)
    return backend
  }

  /** Faults that a test leaves behind would keep its queues from closing. */
  private faulty(backend: Backend): FaultyBackend {
    const faulty = faultyBackend(backend)
    const inject: FaultyBackend['inject'] = (fault) => {
      const injected = faulty.inject(fault)
      this.faults.push(injected)
      return injected
    }
    return { ...faulty, inject }
  }

  private keep<T>(queue: Queue<T>): Queue<T> {
    this.queues.push(queue as unknown as Queue<never>)
    return queue
  }
}
