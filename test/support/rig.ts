import { type Backend, Queue, type QueueOptions } from 'millrace'

/** `onTestFinished`, of the context where tests run side by side: calls back when a test has ended, last first. */
export type Finished = (work: () => Promise<void>) => void

/** Makes queues that are closed, and uses what is stopped, when the test ends. */
export class QueueRig {
  readonly #finished: Finished
  #names = 0

  constructor(finished: Finished) {
    this.#finished = finished
  }

  /** A queue of a name of its own when none is given. */
  queue<T = string>(backend: Backend, options: Partial<QueueOptions<T>> = {}, name?: string): Queue<T> {
    this.#names += 1
    const queue = new Queue<T>(name ?? `q${this.#names}-${Math.random()}`, { backend, ...options })
    this.#defer(() => queue.close({ graceMs: 0 }))
    return queue
  }

  /** Stops it when the test ends. */
  async use<S extends { stop(): Promise<unknown> }>(starting: Promise<S>): Promise<S> {
    const started = await starting
    this.#defer(() => started.stop())
    return started
  }

  /** To be done when the test ends. */
  #defer(work: () => Promise<unknown>): void {
    this.#finished(async () => void (await work()))
  }
}

/** What is handled, and how often. */
export class Effects {
  readonly #times = new Map<string, number>()

  note(id: string): void {
    this.#times.set(id, (this.#times.get(id) ?? 0) + 1)
  }

  get size(): number {
    return this.#times.size
  }

  /** What was handled more than once. */
  get doubled(): string[] {
    return [...this.#times].filter(([, times]) => times > 1).map(([id]) => id)
  }
}

/** Fulfils with how long the work took. */
export async function timed(work: () => PromiseLike<unknown>): Promise<number> {
  const began = performance.now()
  await work()
  return performance.now() - began
}

/** Runs the work on each item, so many at once. */
export async function inGroups<T>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const left = [...items]
  const lane = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item)
  }
  await Promise.all(Array.from({ length: atOnce }, lane))
}
