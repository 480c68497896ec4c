/**
 * The row of a message, and the moves between its states. Each move keeps the counters of the queue right; what
 * decides about a move (limits, tokens, attempts) lives in the files of the verbs.
 */
import { ERRORS_KEPT, type NewMessage } from '../../driver.js'
import { sizeOf } from '../local/admission.js'
import type { QueueRow } from './queue-row.js'
import { rankOf } from './rank.js'
import type { Transaction } from './transaction.js'

/** Where a message is, as the `state` column says it; statements write the number, as their partial indexes do. From `DONE` on it has ended and only its outcome is kept. */
export const READY = 0
export const DELAYED = 1
export const CLAIMED = 2
export const DEAD = 3
export const DONE = 4
/** Dead-lettered to another queue. */
export const DEAD_ELSEWHERE = 5
export const CANCELLED = 6
export const EXPIRED = 7

/** The counter of each state in which a message is still here. */
const COUNTED = ['ready', 'delayed', 'claimed', 'dead'] as const

/** The columns that moves read and write; the payload is not among them. */
export interface Message {
  readonly seq: number
  readonly id: string
  state: number
  rank: number
  place: number
  arrival: number
  arrivedAt: number
  readonly priority: number
  readonly size: number
  readonly ttlMs: number | null
  readonly buryExpired: number
  expiresAt: number | null
  attempt: number
  deliveryCount: number
  leaseAt: number | null
  taken: number
  cancelRequested: number
  attempts: number | null
  reason: string | null
  /** JSON. */
  errors: string | null
  endNumber: number | null
  endedAt: number | null
}

const READ = `seq, id, state, rank, place, arrival, arrivedAt, priority, size, ttlMs, buryExpired, expiresAt, attempt,
  deliveryCount, leaseAt, taken, cancelRequested, attempts, reason, errors, endNumber, endedAt`

/** Begins a statement that reads messages. */
export const SELECT_MESSAGES = `SELECT ${READ} FROM millrace_messages`

/** What a message that has ended no longer needs. */
export const STRIPPED = `leaseAt = NULL, expiresAt = NULL, consumer = NULL, errors = NULL, progress = NULL, key = NULL,
  headers = NULL, bytes = NULL`

const WRITTEN = [
  'state',
  'rank',
  'place',
  'arrival',
  'arrivedAt',
  'expiresAt',
  'attempt',
  'deliveryCount',
  'leaseAt',
  'cancelRequested',
  'attempts',
  'reason',
  'errors',
  'endNumber',
  'endedAt',
] as const

const INSERT_MESSAGE = `INSERT INTO millrace_messages (queue, id, state, rank, place, arrival, arrivedAt, priority, size,
  enqueuedAt, ttlMs, buryExpired, expiresAt, key, headers, bytes)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
const UPDATE_MESSAGE = `UPDATE millrace_messages SET ${WRITTEN.map((name) => `${name} = ?`).join(', ')} WHERE seq = ?`
const END_MESSAGE = `UPDATE millrace_messages SET state = ?, endNumber = ?, endedAt = ?, result = ?, reason = ?,
  attempts = ?, ${STRIPPED} WHERE seq = ?`
const DELETE_MESSAGE = `DELETE FROM millrace_messages WHERE seq = ?`
const OLDEST_OUTCOME = `SELECT endNumber, endedAt FROM millrace_messages WHERE queue = ? AND state > 3
  ORDER BY endNumber LIMIT 1`
const FORGET_EXCESS = `DELETE FROM millrace_messages WHERE queue = ? AND state > 3 AND endNumber <= ?`
const FORGET_OLD = `DELETE FROM millrace_messages WHERE queue = ? AND state > 3 AND endNumber <= ? AND endedAt <= ?`
const FIND = `${SELECT_MESSAGES} WHERE queue = ? AND id = ?`
const CLEAR_PROGRESS = `UPDATE millrace_messages SET progress = NULL WHERE seq = ?`

/** How many outcomes are forgotten at a time: more than one transaction ends, so that they never pile up. */
const TRIM_STEP = 2_000

/** The largest instant that is stored; later ones are never. */
const LATEST = Number.MAX_SAFE_INTEGER

/** The message that holds an id: one that is in the queue, is dead, or has an outcome that is retained. */
export function find(tx: Transaction, queue: QueueRow, id: string): Message | undefined {
  const message = tx.sql(FIND).get(queue.id, id) as Message | undefined
  return message === undefined || outlived(tx, queue, message) ? undefined : message
}

/** Stores a new message; false if its id is not free. */
export function add(tx: Transaction, queue: QueueRow, source: NewMessage): boolean {
  const size = sizeOf(source)
  if (insert(tx, queue, source, size)) return true
  const holder = tx.sql(FIND).get(queue.id, source.id) as Message
  if (!outlived(tx, queue, holder)) return false
  queue.counters.outcomes -= 1
  tx.sql(DELETE_MESSAGE).run(holder.seq)
  return insert(tx, queue, source, size)
}

function insert(tx: Transaction, queue: QueueRow, source: NewMessage, size: number): boolean {
  const { counters } = queue
  const { id, priority, delayMs, ttlMs, key, headers, bytes } = source
  const delayed = delayMs > 0
  const arrivedAt = delayed ? instant(tx.now + delayMs) : Math.max(counters.latestArrivalAt, tx.now)
  const { rank, place } = rankOf(priority, arrivedAt, queue.settings.ageing)
  const expiresAt = ttlMs === undefined ? null : instant(tx.now + ttlMs)
  const { changes } = tx
    .sql(INSERT_MESSAGE)
    .run(
      queue.id,
      id,
      delayed ? DELAYED : READY,
      rank,
      place,
      counters.arrivals + 1,
      arrivedAt,
      priority,
      size,
      tx.now,
      ttlMs === undefined ? null : instant(ttlMs),
      source.whenExpired === 'dead-letter' ? 1 : 0,
      expiresAt,
      key ?? null,
      headers === undefined ? null : JSON.stringify(headers),
      bytes,
    )
  if (changes === 0) return false
  counters.arrivals += 1
  counters.enqueuedTotal += 1
  counters.bytes += size
  if (delayed) {
    counters.delayed += 1
    queue.expect(arrivedAt)
  } else {
    counters.ready += 1
    counters.readyBytes += size
    counters.latestArrivalAt = arrivedAt
    queue.wake()
  }
  if (expiresAt !== null) queue.expect(expiresAt)
  return true
}

/** Takes a message off the state in which it is. It must be put somewhere in the same step. */
export function lift(queue: QueueRow, message: Message): void {
  queue.counters[COUNTED[message.state] as (typeof COUNTED)[number]] -= 1
  if (message.state === READY) queue.counters.readyBytes -= message.size
  message.leaseAt = null
}

/** Makes a lifted message ready in the place that it has, and tells. */
export function giveBack(tx: Transaction, queue: QueueRow, message: Message): void {
  putBack(tx, queue, message)
  queue.wake()
}

/** Makes a lifted message ready in the place that it has. Not told when time did it, which consumers have timers for. */
export function putBack(tx: Transaction, queue: QueueRow, message: Message): void {
  message.state = READY
  queue.counters.ready += 1
  queue.counters.readyBytes += message.size
  write(tx, message)
}

/** Makes a lifted message wait; its place will be that of one that arrives when the delay is over. */
export function delay(tx: Transaction, queue: QueueRow, message: Message, delayMs: number): void {
  message.state = DELAYED
  queue.counters.delayed += 1
  arriveAt(queue, message, instant(tx.now + delayMs))
  write(tx, message)
  queue.expect(message.arrivedAt)
}

/** Ends a lifted message. Its outcome is retained, and with it the id. */
export function end(
  tx: Transaction,
  queue: QueueRow,
  message: Message,
  state: number,
  { result, reason }: { result?: Uint8Array | undefined; reason?: string } = {},
): void {
  const { counters } = queue
  counters.bytes -= message.size
  counters.ends += 1
  counters.outcomes += 1
  queue.ended.push(message.id)
  tx.sql(END_MESSAGE).run(state, counters.ends, tx.now, result ?? null, reason ?? null, message.attempt, message.seq)
}

/** Makes a lifted message a dead letter. */
export function bury(tx: Transaction, queue: QueueRow, message: Message, reason: string, attempts: number): void {
  const { counters } = queue
  counters.bytes -= message.size
  counters.dead += 1
  counters.deaths += 1
  queue.ended.push(message.id)
  message.state = DEAD
  message.reason = reason
  message.attempts = attempts
  message.endNumber = counters.deaths
  message.endedAt = tx.now
  message.expiresAt = null
  write(tx, message)
}

/** Brings a dead letter back as if it were new. */
export function revive(tx: Transaction, queue: QueueRow, message: Message): void {
  lift(queue, message)
  queue.counters.bytes += message.size
  Object.assign(message, { attempt: 1, deliveryCount: 0, cancelRequested: 0, attempts: null, reason: null })
  Object.assign(message, { errors: null, endNumber: null, endedAt: null })
  message.expiresAt = message.ttlMs === null ? null : instant(tx.now + message.ttlMs)
  queue.counters.latestArrivalAt = Math.max(queue.counters.latestArrivalAt, tx.now)
  arriveAt(queue, message, queue.counters.latestArrivalAt)
  tx.sql(CLEAR_PROGRESS).run(message.seq)
  giveBack(tx, queue, message)
  if (message.expiresAt !== null) queue.expect(message.expiresAt)
}

/** Ends a lifted message without a trace. Its id is free again. */
export function forget(tx: Transaction, queue: QueueRow, message: Message): void {
  if (message.state !== DEAD) queue.counters.bytes -= message.size
  queue.ended.push(message.id)
  tx.sql(DELETE_MESSAGE).run(message.seq)
}

/** Forgets outcomes that are too many or too old, a bounded number at a time. */
export function trimOutcomes(tx: Transaction, queue: QueueRow): void {
  const { counters } = queue
  if (counters.outcomes === 0) return
  const { maxOutcomes, outcomesMs } = queue.settings.retention
  const oldest = tx.sql(OLDEST_OUTCOME).get(queue.id) as { endNumber: number; endedAt: number } | undefined
  if (oldest === undefined) return
  const upTo = oldest.endNumber + TRIM_STEP
  const excess = Math.min(counters.ends - maxOutcomes, upTo)
  if (oldest.endNumber <= excess) counters.outcomes -= tx.sql(FORGET_EXCESS).run(queue.id, excess).changes
  const tooOld = tx.now - outcomesMs
  if (oldest.endedAt <= tooOld) counters.outcomes -= tx.sql(FORGET_OLD).run(queue.id, upTo, tooOld).changes
}

/** Remembers why an attempt failed. */
export function noteFailure(message: Message, reason: string): void {
  const errors: string[] = message.errors === null ? [] : JSON.parse(message.errors)
  message.errors = JSON.stringify([...errors, reason].slice(-ERRORS_KEPT))
}

export function instant(at: number): number {
  return Math.min(Math.ceil(at), LATEST)
}

function arriveAt(queue: QueueRow, message: Message, arrivedAt: number): void {
  queue.counters.arrivals += 1
  message.arrival = queue.counters.arrivals
  message.arrivedAt = arrivedAt
  Object.assign(message, rankOf(message.priority, arrivedAt, queue.settings.ageing))
}

function write(tx: Transaction, message: Message): void {
  tx.sql(UPDATE_MESSAGE).run(...WRITTEN.map((name) => message[name]), message.seq)
}

function outlived(tx: Transaction, queue: QueueRow, message: Message): boolean {
  return message.state >= DONE && (message.endedAt ?? 0) + queue.settings.retention.outcomesMs <= tx.now
}
