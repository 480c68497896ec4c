import type { SharedSettings } from '../../driver.js'
import { rerank } from './maintenance.js'
import { trimOutcomes } from './message.js'
import type { QueueRow } from './queue-row.js'
import type { Transaction } from './transaction.js'

/** Stores each setting that nobody has named before; the first who names one decides. */
export function settings(tx: Transaction, queue: QueueRow, proposed: Partial<SharedSettings>): SharedSettings {
  const { named } = queue
  const fresh = Object.entries(proposed).filter(([field]) => !Object.hasOwn(named, field))
  if (fresh.length > 0) apply(tx, queue, Object.fromEntries(fresh))
  return queue.settings
}

/** Replaces the settings that are named; they hold from now on for all that is here. */
export function configure(tx: Transaction, queue: QueueRow, changes: Partial<SharedSettings>): SharedSettings {
  apply(tx, queue, changes)
  queue.wake()
  return queue.settings
}

function apply(tx: Transaction, queue: QueueRow, changes: Partial<SharedSettings>): void {
  queue.nameSettings(changes)
  if (changes.ageing !== undefined) {
    queue.counters.reranked = 0
    rerank(tx, queue)
  }
  trimOutcomes(tx, queue)
}

/** Sets the flag that every claim looks at, in every process and after a restart. */
export function setPaused(queue: QueueRow, paused: boolean): void {
  queue.counters.paused = paused ? 1 : 0
  if (!paused) queue.wake()
}
