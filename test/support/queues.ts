import { Queue, type QueueOptions, type QueueStats } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { type FaultyBackend, faultyBackend } from 'millrace/testing'
import { expect, onTestFinished } from 'vitest'

let names = 0

/** A queue on a memory backend of its own, closed when the test ends. */
export function memoryQueue<T = string>(
  options: Partial<QueueOptions<T>> = {},
): { queue: Queue<T>; backend: FaultyBackend } {
  const backend = faultyBackend(memoryBackend())
  return { queue: queueOn<T>(backend, options), backend }
}

/** Another queue object on a backend that is there; of the same queue when it has the same name. */
export function queueOn<T = string>(
  backend: FaultyBackend,
  options: Partial<QueueOptions<T>> = {},
  name?: string,
): Queue<T> {
  names += 1
  const queue = new Queue<T>(name ?? `q${names}`, { backend, ...options })
  onTestFinished(async () => {
    await queue.close({ graceMs: 0 })
  })
  return queue
}

/** What must be true of the totals at every instant. */
function conserved(stats: QueueStats): boolean {
  const {
    ready,
    delayed,
    claimed,
    dead,
    ackedTotal,
    forwardedTotal,
    purgedTotal,
    expiredTotal,
    cancelledTotal,
    droppedTotal,
  } = stats
  const sum =
    ready +
    delayed +
    claimed +
    dead +
    ackedTotal +
    forwardedTotal +
    purgedTotal +
    expiredTotal +
    cancelledTotal +
    droppedTotal
  return sum === stats.enqueuedTotal
}

/** Asserts where the messages are, and that none is lost or doubled. */
export async function expectStats<T>(queue: Queue<T>, expected: Partial<QueueStats>): Promise<void> {
  const stats = await queue.stats()
  expect(stats).toMatchObject(expected)
  expect(conserved(stats)).toBe(true)
}
