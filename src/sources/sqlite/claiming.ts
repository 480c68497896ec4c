import type { Claim, ClaimReply, ClaimRequest } from '../../driver.js'
import { expire, MAINTENANCE_STEP, maintain, nextAt } from './maintenance.js'
import { instant, type Message, SELECT_MESSAGES } from './message.js'
import type { QueueRow } from './queue-row.js'
import type { Transaction } from './transaction.js'

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** What a claim needs and shows of a ready message. */
interface Ready extends Pick<Message, 'seq' | 'id' | 'attempt' | 'deliveryCount' | 'priority' | 'size' | 'expiresAt'> {
  readonly enqueuedAt: number
  readonly key: string | null
  readonly headers: string | null
  readonly bytes: Uint8Array
}

const NEXT_READY = `SELECT seq, id, bytes, attempt, deliveryCount, priority, key, headers, enqueuedAt, expiresAt, size
  FROM millrace_messages WHERE queue = ? AND state = 0 ORDER BY rank, place, arrival LIMIT ?`
const WHOLE = `${SELECT_MESSAGES} WHERE seq = ?`
const CLAIM = `UPDATE millrace_messages SET state = 2, fence = ?, leaseAt = ?, deliveryCount = deliveryCount + 1,
  consumer = ?, taken = ? WHERE seq = ?`

/** Grants what is ready, after what has become due was moved. */
export function claim(tx: Transaction, queue: QueueRow, request: ClaimRequest): ClaimReply {
  const claims: Claim[] = []
  const paused = queue.counters.paused === 1
  if (!paused) grantUpTo(tx, queue, request, claims)
  return withNextDue<Mutable<ClaimReply>>({ claims, paused }, tx, queue)
}

/** The lease that is granted for one that is asked for. */
export function grantable(leaseMs: number): number {
  return Math.max(1, Math.ceil(leaseMs))
}

/** Adds how long nothing will happen by itself, if something will. */
export function withNextDue<T extends { nextDueMs?: number }>(reply: T, tx: Transaction, queue: QueueRow): T {
  const at = nextAt(tx, queue)
  if (at !== Number.POSITIVE_INFINITY) reply.nextDueMs = Math.max(0, at - tx.now)
  return reply
}

/** How many steps of maintenance one claim takes at most, so that it does not take long after a long rest. */
const MOST_STEPS = 5

/**
 * Goes on until enough is granted or nothing is ready; a step of maintenance may have left more that is due. What is
 * left over all the same is due at once, which the answer tells.
 */
function grantUpTo(tx: Transaction, queue: QueueRow, request: ClaimRequest, claims: Claim[]): void {
  for (let steps = 0; steps < MOST_STEPS; steps += 1) {
    grantReady(tx, queue, request, claims)
    if (claims.length >= request.max || maintain(tx, queue, MAINTENANCE_STEP) === 0) return
  }
}

function grantReady(tx: Transaction, queue: QueueRow, request: ClaimRequest, claims: Claim[]): void {
  const ready = tx.sql(NEXT_READY).all(queue.id, request.max - claims.length) as Ready[]
  for (const message of ready) {
    if (message.expiresAt !== null && message.expiresAt <= tx.now)
      expire(tx, queue, tx.sql(WHOLE).get(message.seq) as Message)
    else claims.push(grant(tx, queue, message, request))
  }
}

function grant(tx: Transaction, queue: QueueRow, message: Ready, request: ClaimRequest): Claim {
  const { counters } = queue
  const leaseMs = grantable(request.leaseMs)
  const leaseExpiresAt = instant(tx.now + leaseMs)
  counters.fences += 1
  counters.ready -= 1
  counters.readyBytes -= message.size
  counters.claimed += 1
  tx.sql(CLAIM).run(counters.fences, leaseExpiresAt, request.consumer, request.take ? 1 : 0, message.seq)
  queue.nextAt = Math.min(queue.nextAt, leaseExpiresAt)
  const claim: Mutable<Claim> = {
    id: message.id,
    token: `${counters.fences}`,
    fence: counters.fences,
    bytes: message.bytes,
    attempt: message.attempt,
    deliveryCount: message.deliveryCount + 1,
    priority: message.priority,
    enqueuedAt: message.enqueuedAt,
    leaseMs,
    leaseExpiresAt,
  }
  if (message.key !== null) claim.key = message.key
  if (message.headers !== null) claim.headers = JSON.parse(message.headers)
  return claim
}
