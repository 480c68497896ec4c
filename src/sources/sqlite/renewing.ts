import type { Renewal, RenewResult } from '../../driver.js'
import { grantable } from './claiming.js'
import { instant } from './message.js'
import type { QueueRow } from './queue-row.js'
import { liveClaim } from './settling.js'
import type { Transaction } from './transaction.js'

const RENEW = `UPDATE millrace_messages SET leaseAt = ?, progress = coalesce(?, progress) WHERE seq = ?`

const STALE: RenewResult = { state: 'stale', leaseMs: 0, leaseExpiresAt: 0 }

/** Moves the end of a claim's lease, if that claim is live. */
export function renew(tx: Transaction, queue: QueueRow, { id, token, leaseMs, progress }: Renewal): RenewResult {
  const message = liveClaim(tx, queue, id, token)
  if (message === undefined) return STALE
  const granted = grantable(leaseMs)
  const leaseExpiresAt = instant(tx.now + granted)
  tx.sql(RENEW).run(leaseExpiresAt, progress ?? null, message.seq)
  queue.expect(leaseExpiresAt)
  return { state: message.cancelRequested === 1 ? 'cancelled' : 'renewed', leaseMs: granted, leaseExpiresAt }
}
