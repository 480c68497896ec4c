import type { EnqueueStatus, NewMessage, SharedSettings } from '../../driver.js'
import {
  type AdmissionPlan,
  type BatchCaps,
  clear,
  fullUnlessDroppable,
  type Leaving,
  planAdmission as planFor,
  type Room,
} from '../local/admission.js'
import { oldestReady } from './inspection.js'
import { add, find, forget, lift, type Message } from './message.js'
import type { QueueRow } from './queue-row.js'
import type { Transaction } from './transaction.js'

/** What one transaction stores without stopping the process for long. */
export const CAPS: BatchCaps = { backend: 'sqlite', maxBatch: 10_000, maxBatchBytes: 64 * 1024 * 1024 }

/** Checks a batch against all limits without changing anything. Throws what refuses the batch. */
export function planAdmission(
  tx: Transaction,
  queue: QueueRow,
  batch: readonly NewMessage[],
  leaving?: Leaving,
): AdmissionPlan {
  const plan = planFor(new QueueRoom(tx, queue), batch, CAPS, leaving)
  if (plan instanceof Error) throw plan
  return plan
}

/** Carries out a plan. Nothing may have changed since it was made. */
export function admit(
  tx: Transaction,
  queue: QueueRow,
  batch: readonly NewMessage[],
  plan: AdmissionPlan,
): EnqueueStatus[] {
  clear(new QueueRoom(tx, queue), plan.length, plan.bytes, () => dropOldest(tx, queue))
  return batch.map((message, index) => {
    const wanted = plan.fresh === undefined || plan.fresh[index] === true
    return wanted && add(tx, queue, message) ? 'enqueued' : 'duplicate'
  })
}

/** Makes room for messages that come back into the charged states, or throws. */
export function makeRoom(tx: Transaction, queue: QueueRow, length: number, bytes: number): void {
  const room = new QueueRoom(tx, queue)
  const error = fullUnlessDroppable(room, length, bytes)
  if (error !== undefined) throw error
  clear(room, length, bytes, () => dropOldest(tx, queue))
}

function dropOldest(tx: Transaction, queue: QueueRow): void {
  const oldest = oldestReady(tx, queue) as Message
  lift(queue, oldest)
  queue.counters.droppedTotal += 1
  forget(tx, queue, oldest)
}

/** What a queue holds in the present transaction. */
class QueueRoom implements Room {
  readonly #tx: Transaction
  readonly #queue: QueueRow

  constructor(tx: Transaction, queue: QueueRow) {
    this.#tx = tx
    this.#queue = queue
  }

  get name(): string {
    return this.#queue.name
  }
  get settings(): SharedSettings {
    return this.#queue.settings
  }
  get length(): number {
    return this.#queue.length
  }
  get bytes(): number {
    return this.#queue.counters.bytes
  }
  get readyLength(): number {
    return this.#queue.counters.ready
  }
  get readyBytes(): number {
    return this.#queue.counters.readyBytes
  }

  holds(id: string): boolean {
    return find(this.#tx, this.#queue, id) !== undefined
  }
}
