import type { CarriedMessage, NewMessage, SettleCommand, SettleResult } from '../../driver.js'
import { MillraceError } from '../../errors.js'
import { type AdmissionPlan, byQueue } from '../local/admission.js'
import { type CommandOf, carries, settled } from '../local/settle-results.js'
import { admit, planAdmission } from './admission.js'
import { endCancelled, failAttempt, mayBeDeliveredAgain, openQueue } from './maintenance.js'
import {
  bury,
  DEAD_ELSEWHERE,
  DONE,
  delay,
  end,
  giveBack,
  lift,
  type Message,
  noteFailure,
  SELECT_MESSAGES,
  STRIPPED,
} from './message.js'
import type { QueueRow } from './queue-row.js'
import type { Transaction } from './transaction.js'

const LIVE_CLAIM = `${SELECT_MESSAGES} WHERE queue = ? AND id = ? AND state = 2 AND fence = ? AND leaseAt > ?`
/** The whole of an ack, which is what nearly all settlements are. */
const ACK = `UPDATE millrace_messages SET state = 4, endNumber = ?, endedAt = ?, result = ?, ${STRIPPED}
  WHERE queue = ? AND id = ? AND state = 2 AND fence = ? AND leaseAt > ? RETURNING size`

/** The message of a claim, if that claim is live. */
export function liveClaim(tx: Transaction, queue: QueueRow, id: string, token: string): Message | undefined {
  return tx.sql(LIVE_CLAIM).get(queue.id, id, fenceOf(token), tx.now) as Message | undefined
}

/** Carries out one command: one step, and none at all if the claim is not the live one. */
export function settle(tx: Transaction, queue: QueueRow, command: SettleCommand): SettleResult {
  if (command.kind === 'ack' && !carries(command)) return ack(tx, queue, command)
  const message = liveClaim(tx, queue, command.id, command.token)
  if (message === undefined) return settled.stale
  if (command.kind === 'ack') return forward(tx, queue, message, command)
  if (message.cancelRequested === 1) return cancel(tx, queue, message)
  if (command.kind === 'release') return release(tx, queue, message, command.delivered)
  if (command.kind === 'requeue') return requeue(tx, queue, message, command)
  return deadLetter(tx, queue, message, command)
}

function ack(tx: Transaction, queue: QueueRow, { id, token, result }: CommandOf<'ack'>): SettleResult {
  const { counters } = queue
  const acked = tx.sql(ACK).get(counters.ends + 1, tx.now, result ?? null, queue.id, id, fenceOf(token), tx.now)
  if (acked === undefined) return settled.stale
  counters.ends += 1
  counters.claimed -= 1
  counters.bytes -= (acked as { size: number }).size
  counters.ackedTotal += 1
  counters.outcomes += 1
  queue.ended.push(id)
  return settled.acked
}

function forward(
  tx: Transaction,
  queue: QueueRow,
  message: Message,
  { carry = [], result }: CommandOf<'ack'>,
): SettleResult {
  const refused = carryOver(tx, queue, message, carry, () => end(tx, queue, message, DONE, { result }))
  return refused ?? settled.forwarded
}

function cancel(tx: Transaction, queue: QueueRow, message: Message): SettleResult {
  lift(queue, message)
  endCancelled(tx, queue, message)
  return settled.cancelled
}

function release(tx: Transaction, queue: QueueRow, message: Message, delivered: boolean): SettleResult {
  lift(queue, message)
  if (!delivered) message.deliveryCount -= 1
  else if (!mayBeDeliveredAgain(tx, queue, message)) return settled.dead
  giveBack(tx, queue, message)
  return settled.ready
}

function requeue(tx: Transaction, queue: QueueRow, message: Message, command: CommandOf<'requeue'>): SettleResult {
  lift(queue, message)
  if (command.reason !== undefined) noteFailure(message, command.reason)
  const mayReturn = command.countAttempt
    ? failAttempt(tx, queue, message, command.reason ?? `attempt ${message.attempt} failed`)
    : mayBeDeliveredAgain(tx, queue, message)
  if (!mayReturn) return settled.dead
  if (command.delayMs > 0) {
    delay(tx, queue, message, command.delayMs)
    return settled.delayed
  }
  giveBack(tx, queue, message)
  return settled.ready
}

function deadLetter(
  tx: Transaction,
  queue: QueueRow,
  message: Message,
  command: CommandOf<'dead-letter'>,
): SettleResult {
  const { carry = [], reason } = command
  if (carries(command)) {
    const leave = () => end(tx, queue, message, DEAD_ELSEWHERE, { reason })
    return carryOver(tx, queue, message, carry, leave) ?? settled.dead
  }
  lift(queue, message)
  noteFailure(message, reason)
  bury(tx, queue, message, reason, message.attempt)
  return settled.dead
}

/** Ends a claim together with storing what it carries; a refusal, with nothing changed, if that cannot be stored. */
function carryOver(
  tx: Transaction,
  from: QueueRow,
  message: Message,
  carried: readonly CarriedMessage[],
  leave: () => void,
): SettleResult | undefined {
  const parcels: { to: QueueRow; batch: NewMessage[]; plan: AdmissionPlan }[] = []
  try {
    for (const [name, batch] of byQueue(carried)) {
      const to = openQueue(tx, name)
      parcels.push({ to, batch, plan: planAdmission(tx, to, batch, to === from ? message : undefined) })
    }
  } catch (error) {
    if (error instanceof MillraceError) return { state: 'refused', error }
    throw error
  }
  lift(from, message)
  from.counters.forwardedTotal += 1
  leave()
  for (const { to, batch, plan } of parcels) admit(tx, to, batch, plan)
  return undefined
}

/** A claim's token is its fence, which no other claim of the queue ever has. */
function fenceOf(token: string): number {
  return /^[1-9]\d{0,15}$/.test(token) ? Number(token) : -1
}
