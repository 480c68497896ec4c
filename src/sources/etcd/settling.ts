/**
 * What a settlement does to its message. All of it is certain as long as the session's record is as we know it.
 */
import type { SettleCommand, SettleResult } from '../../driver.js'
import { LimitError } from '../../errors.js'
import { type CommandOf, settled } from '../local/settle-results.js'
import { type Change, withError } from './change.js'
import type { Desk, Held } from './desk.js'
import type { Entry } from './entry.js'

/** The largest result of an ack. */
const MAX_RESULT_BYTES = 1_400_000

/** Carries out one command that carries no messages, on a change in the making. */
export function settleOne(desk: Desk, change: Change, command: SettleCommand): SettleResult {
  const held = desk.live(command.id, command.token)
  if (held === undefined) return settled.stale
  if (command.kind === 'ack') return ack(change, held, command)
  if (desk.session.record.isCancelRequested(held.page, held.index)) {
    change.settleClaim(held.page, held.index)
    change.endCancelled(held.entry)
    return settled.cancelled
  }
  change.settleClaim(held.page, held.index)
  if (command.kind === 'release') return release(change, held, command.delivered)
  if (command.kind === 'requeue') return requeue(change, held, command)
  change.bury(withError(held.entry, command.reason), command.reason, held.entry.attempt)
  return settled.dead
}

function ack(change: Change, { page, index, entry }: Held, { result }: CommandOf<'ack'>): SettleResult {
  if (result !== undefined && result.byteLength > MAX_RESULT_BYTES) {
    return { state: 'refused', error: new LimitError('result', MAX_RESULT_BYTES, result.byteLength) }
  }
  change.settleClaim(page, index)
  change.record.count('acked')
  change.end(entry, { state: 'done' }, result)
  return settled.acked
}

function release(change: Change, { entry, place }: Held, delivered: boolean): SettleResult {
  if (!delivered) change.makeReady({ ...entry, deliveries: entry.deliveries - 1 }, place)
  else if (change.mayReturn(entry)) change.makeReady(entry, place)
  else return settled.dead
  return settled.ready
}

function requeue(change: Change, held: Held, { reason, countAttempt, delayMs }: CommandOf<'requeue'>): SettleResult {
  const entry = reason === undefined ? held.entry : withError(held.entry, reason)
  const back = countAttempt ? change.failed(entry, reason ?? `attempt ${entry.attempt} failed`) : stays(change, entry)
  if (back === undefined) return settled.dead
  if (delayMs > 0) {
    change.delay(back, change.now + Math.ceil(delayMs), held.place)
    return settled.delayed
  }
  change.makeReady(back, held.place)
  return settled.ready
}

function stays(change: Change, entry: Entry): Entry | undefined {
  return change.mayReturn(entry) ? entry : undefined
}
