import type { Queue } from '../queue.js'
import type { QueueCore } from './queue-core.js'

const cores = new WeakMap<object, QueueCore<never>>()

/** Ties a queue object to its inside, which is nobody else's to see. */
export function bindCore<T>(queue: Queue<T>, core: QueueCore<T>): void {
  cores.set(queue, core as unknown as QueueCore<never>)
}

/** The inside of a queue object; undefined for anything else. */
export function coreOf<T>(queue: Queue<T>): QueueCore<T> | undefined {
  return cores.get(queue) as unknown as QueueCore<T> | undefined
}
