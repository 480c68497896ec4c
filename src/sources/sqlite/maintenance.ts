/**
 * What happens by itself: leases lapse, times to live run out, delays end. Also the slices of work that a change of
 * the settings leaves behind.
 */
import { DELIVERIES_PER_ATTEMPT } from '../../driver.js'
import {
  bury,
  CANCELLED,
  EXPIRED,
  end,
  forget,
  lift,
  type Message,
  noteFailure,
  putBack,
  SELECT_MESSAGES,
  trimOutcomes,
} from './message.js'
import type { QueueRow } from './queue-row.js'
import { AGED, stepOf } from './rank.js'
import type { Transaction } from './transaction.js'

/** How many messages one transaction moves at most before it does its own work, so that none takes long. */
export const MAINTENANCE_STEP = 200

const NEXT_AT = `SELECT
  (SELECT arrivedAt FROM millrace_messages WHERE queue = ? AND state = 1 ORDER BY arrivedAt LIMIT 1) AS dueAt,
  (SELECT leaseAt FROM millrace_messages WHERE queue = ? AND state = 2 ORDER BY leaseAt LIMIT 1) AS lapsesAt,
  (SELECT expiresAt FROM millrace_messages WHERE queue = ? AND state < 2 AND expiresAt IS NOT NULL
    ORDER BY expiresAt LIMIT 1) AS expiresAt`
const LAPSED = `${SELECT_MESSAGES} WHERE queue = ? AND state = 2 AND leaseAt <= ? ORDER BY leaseAt LIMIT ?`
const OUTLIVED = `${SELECT_MESSAGES} WHERE queue = ? AND state < 2 AND expiresAt IS NOT NULL AND expiresAt <= ?
  ORDER BY expiresAt LIMIT ?`
const PROMOTE = `UPDATE millrace_messages SET state = 0 WHERE seq IN (SELECT seq FROM millrace_messages
  WHERE queue = ? AND state = 1 AND arrivedAt <= ? ORDER BY arrivedAt, arrival LIMIT ?) RETURNING size`
const RERANK_STRICT = `UPDATE millrace_messages SET rank = priority, place = arrivedAt
  WHERE queue = ? AND seq > ? AND seq <= ? AND state < 4 AND priority > ?`
const RERANK_AGED = `UPDATE millrace_messages SET rank = ${AGED},
  place = arrivedAt + CAST(round(priority * ?) AS INTEGER)
  WHERE queue = ? AND seq > ? AND seq <= ? AND state < 4 AND priority <= ?`
const RERANK_UP_TO = `SELECT max(seq) AS seq FROM (SELECT seq FROM millrace_messages WHERE seq > ? ORDER BY seq LIMIT ?)`

/** The next instant at which something happens by itself; infinity when there is none. */
export function nextAt(tx: Transaction, queue: QueueRow): number {
  const { dueAt, lapsesAt, expiresAt } = tx.sql(NEXT_AT).get(queue.id, queue.id, queue.id) as Record<
    string,
    number | null
  >
  return Math.min(...[dueAt, lapsesAt, expiresAt].map((at) => at ?? Number.POSITIVE_INFINITY))
}

/** The row of a queue, with what is due in it done first. */
export function openQueue(tx: Transaction, name: string): QueueRow {
  return tx.queue(name, (row) => open(tx, row))
}

/** Opens a queue for a transaction: what is due is done first, as far as one step goes. Answers how much that was. */
export function open(tx: Transaction, queue: QueueRow, limit = MAINTENANCE_STEP): number {
  queue.nextAt = nextAt(tx, queue)
  const moved = maintain(tx, queue, limit)
  if (queue.counters.reranked !== null) rerank(tx, queue)
  trimOutcomes(tx, queue)
  return moved
}

/** Does what has become due; answers how many messages it moved, at most `limit`. */
export function maintain(tx: Transaction, queue: QueueRow, limit: number): number {
  if (queue.nextAt > tx.now) return 0
  let moved = 0
  for (const message of tx.sql(LAPSED).all(queue.id, tx.now, limit) as Message[]) {
    lapse(tx, queue, message)
    moved += 1
  }
  for (const message of tx.sql(OUTLIVED).all(queue.id, tx.now, limit - moved) as Message[]) {
    expire(tx, queue, message)
    moved += 1
  }
  moved += promote(tx, queue, limit - moved)
  queue.nextAt = nextAt(tx, queue)
  return moved
}

/** Ends a queued message that nobody took in time. */
export function expire(tx: Transaction, queue: QueueRow, message: Message): void {
  lift(queue, message)
  if (message.buryExpired === 1) return bury(tx, queue, message, 'its time to live ran out', message.attempt - 1)
  queue.counters.expiredTotal += 1
  end(tx, queue, message, EXPIRED)
}

/** Ends a lifted message whose cancel was requested. */
export function endCancelled(tx: Transaction, queue: QueueRow, message: Message): void {
  queue.counters.cancelledTotal += 1
  end(tx, queue, message, CANCELLED)
}

/** Counts a failed attempt of a lifted message. False if that was its last, and it is a dead letter now. */
export function failAttempt(tx: Transaction, queue: QueueRow, message: Message, reason: string): boolean {
  if (message.attempt >= queue.settings.maxDeliveries) {
    bury(tx, queue, message, reason, message.attempt)
    return false
  }
  if (!mayBeDeliveredAgain(tx, queue, message)) return false
  message.attempt += 1
  return true
}

/** False if a lifted message has been handed over too often, however it came back, and is a dead letter now. */
export function mayBeDeliveredAgain(tx: Transaction, queue: QueueRow, message: Message): boolean {
  if (message.deliveryCount < DELIVERIES_PER_ATTEMPT * queue.settings.maxDeliveries) return true
  bury(tx, queue, message, `it was handed over ${message.deliveryCount} times without being settled`, message.attempt)
  return false
}

/** The lease ran out: the consumer is taken for dead, and its attempt for failed. */
function lapse(tx: Transaction, queue: QueueRow, message: Message): void {
  lift(queue, message)
  if (message.cancelRequested === 1) return endCancelled(tx, queue, message)
  if (message.taken === 1) {
    queue.counters.droppedTotal += 1
    return forget(tx, queue, message)
  }
  const reason = `the lease lapsed on attempt ${message.attempt} of ${queue.settings.maxDeliveries}`
  noteFailure(message, reason)
  if (failAttempt(tx, queue, message, reason)) putBack(tx, queue, message)
}

function promote(tx: Transaction, queue: QueueRow, limit: number): number {
  const promoted = tx.sql(PROMOTE).all(queue.id, tx.now, limit) as { size: number }[]
  const { counters } = queue
  counters.delayed -= promoted.length
  counters.ready += promoted.length
  for (const { size } of promoted) counters.readyBytes += size
  return promoted.length
}

/** Puts the next slice of messages where the present ageing wants them. */
export function rerank(tx: Transaction, queue: QueueRow): void {
  const { counters, settings } = queue
  const from = counters.reranked ?? 0
  const { seq } = tx.sql(RERANK_UP_TO).get(from, MAINTENANCE_STEP * 5) as { seq: number | null }
  counters.reranked = seq
  if (seq === null) return
  const { ageing } = settings
  tx.sql(RERANK_STRICT).run(queue.id, from, seq, ageing?.cap ?? AGED)
  if (ageing !== null) tx.sql(RERANK_AGED).run(stepOf(ageing), queue.id, from, seq, ageing.cap)
}
