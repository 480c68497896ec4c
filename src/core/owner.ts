import type { Backend, QueueDriver, SettleCommand } from '../driver.js'
import type { LeaseLostError } from '../errors.js'
import type { Released, SourceEvent } from '../events.js'
import type { Eventual } from '../eventual.js'
import type { Clock } from './clock.js'
import type { HeldClaim } from './held-claim.js'
import type { SettleListener } from './settler.js'

/** Who holds a claim, as the claim sees it. Each `on…` is called once the claim's own state is right. */
export interface ClaimOwner {
  readonly clock: Clock
  readonly queue: string
  /** The store of the queue, also to tell whether another queue shares it. */
  readonly backend: Backend
  readonly driver: QueueDriver
  readonly closed: Eventual<Released>
  /** Whether it has been cancelled, and still honours what is settled. */
  readonly late: boolean
  send(command: SettleCommand, listener: SettleListener): void
  onEnded(claim: HeldClaim): void
  onLost(claim: HeldClaim, why: LeaseLostError['why']): void
  onRefused(claim: HeldClaim): void
  onUnknown(claim: HeldClaim, error: unknown): void
  extend(claim: HeldClaim, ms: number): Eventual<'extended' | 'stale' | 'capped'>
  emit(event: SourceEvent): void
  /** Asks the store, when this turn has ended, whether a transaction of the caller's has really acked the claim. */
  confirm(claim: HeldClaim): void
  progressed(claim: HeldClaim, value: unknown): void
}
