import type { CancelReply, PurgeState, QueueStats, StoredOutcome } from '../../driver.js'
import { endCancelled } from './maintenance.js'
import {
  CANCELLED,
  CLAIMED,
  DEAD,
  DEAD_ELSEWHERE,
  DELAYED,
  EXPIRED,
  find,
  forget,
  lift,
  type Message,
  READY,
  SELECT_MESSAGES,
} from './message.js'
import type { QueueRow } from './queue-row.js'
import { AGED } from './rank.js'
import type { Transaction } from './transaction.js'

const NEXT_RANK = `${SELECT_MESSAGES} WHERE queue = ? AND state = 0 AND rank > ? ORDER BY rank, place, arrival LIMIT 1`
const NEXT_AGED = `${SELECT_MESSAGES} WHERE queue = ? AND state = 0 AND rank = ${AGED} AND priority > ?
  ORDER BY priority, arrivedAt LIMIT 1`
const OUTCOME = `SELECT result, reason FROM millrace_messages WHERE seq = ?`
const REQUEST_CANCEL = `UPDATE millrace_messages SET cancelRequested = 1 WHERE seq = ?`

/** Purges by state, each in the order of its index. */
const PURGED: Readonly<Record<PurgeState, string>> = {
  ready: `${SELECT_MESSAGES} WHERE queue = ? AND state = 0 ORDER BY rank, place, arrival LIMIT ?`,
  delayed: `${SELECT_MESSAGES} WHERE queue = ? AND state = 1 ORDER BY arrivedAt, arrival LIMIT ?`,
  claimed: `${SELECT_MESSAGES} WHERE queue = ? AND state = 2 ORDER BY leaseAt LIMIT ?`,
  dead: `${SELECT_MESSAGES} WHERE queue = ? AND state = 3 ORDER BY endNumber LIMIT ?`,
}

/** The counts of a queue, whatever its depth at the same cost. */
export function statsOf(tx: Transaction, queue: QueueRow): QueueStats {
  const { counters } = queue
  const oldest = oldestReady(tx, queue)
  return {
    ready: counters.ready,
    delayed: counters.delayed,
    claimed: counters.claimed,
    dead: counters.dead,
    oldestReadyAgeMs: oldest === undefined ? 0 : Math.max(0, tx.now - oldest.arrivedAt),
    paused: counters.paused === 1,
    enqueuedTotal: counters.enqueuedTotal,
    ackedTotal: counters.ackedTotal,
    forwardedTotal: counters.forwardedTotal,
    purgedTotal: counters.purgedTotal,
    expiredTotal: counters.expiredTotal,
    cancelledTotal: counters.cancelledTotal,
    droppedTotal: counters.droppedTotal,
  }
}

/**
 * The message that arrived before all others, whatever its priority: the first of each rank, and of each priority
 * among those that age, compared with each other. One look at an index for each priority that is in use.
 */
export function oldestReady(tx: Transaction, queue: QueueRow): Message | undefined {
  let oldest: Message | undefined
  const consider = (message: Message) => {
    if (oldest === undefined || precedes(message, oldest)) oldest = message
  }
  for (const message of skip(tx, queue, NEXT_AGED, ({ priority }) => priority)) consider(message)
  for (const message of skip(tx, queue, NEXT_RANK, ({ rank }) => rank)) consider(message)
  return oldest
}

function precedes(one: Message, other: Message): boolean {
  return one.arrivedAt === other.arrivedAt ? one.arrival < other.arrival : one.arrivedAt < other.arrivedAt
}

/** The first message of each group of an index. */
function* skip(
  tx: Transaction,
  queue: QueueRow,
  next: string,
  groupOf: (message: Message) => number,
): Iterable<Message> {
  for (let group = AGED; ; ) {
    const message = tx.sql(next).get(queue.id, group) as Message | undefined
    if (message === undefined) return
    group = groupOf(message)
    yield message
  }
}

/** What is known of the end of a message. */
export function outcomeOf(tx: Transaction, queue: QueueRow, id: string): StoredOutcome {
  const message = find(tx, queue, id)
  if (message === undefined) return { state: 'unknown' }
  if (message.state < DEAD) return { state: 'pending' }
  if (message.state === CANCELLED) return { state: 'cancelled' }
  if (message.state === EXPIRED) return { state: 'expired' }
  const { result, reason } = tx.sql(OUTCOME).get(message.seq) as { result: Uint8Array | null; reason: string | null }
  if (message.state === DEAD || message.state === DEAD_ELSEWHERE) return { state: 'dead', reason: reason ?? '' }
  return result === null ? { state: 'done' } : { state: 'done', result }
}

/** Cancels a queued message at once, and asks for the cancel of a claimed one. */
export function cancelMessage(tx: Transaction, queue: QueueRow, id: string): CancelReply {
  const message = find(tx, queue, id)
  switch (message?.state) {
    case undefined:
      return 'unknown'
    case READY:
    case DELAYED:
      lift(queue, message as Message)
      endCancelled(tx, queue, message as Message)
      return 'cancelled'
    case CLAIMED:
      tx.sql(REQUEST_CANCEL).run((message as Message).seq)
      queue.counters.cancels += 1
      return 'cancelling'
    default:
      return 'finished'
  }
}

/** Drops up to `limit` messages in the given states, and answers how many it dropped. */
export function purgeStates(tx: Transaction, queue: QueueRow, states: readonly PurgeState[], limit: number): number {
  let purged = 0
  for (const state of states) {
    for (const message of tx.sql(PURGED[state]).all(queue.id, limit - purged) as Message[]) {
      purge(tx, queue, message)
      purged += 1
    }
  }
  return purged
}

/** Drops a message for good; its id is free again. */
export function purge(tx: Transaction, queue: QueueRow, message: Message): void {
  lift(queue, message)
  queue.counters.purgedTotal += 1
  forget(tx, queue, message)
}

/** The dead letter of an id. */
export function findDead(tx: Transaction, queue: QueueRow, id: string): Message | undefined {
  const message = find(tx, queue, id)
  return message?.state === DEAD ? message : undefined
}
