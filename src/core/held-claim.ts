/**
 * A claim that this process holds, from its grant to its end.
 *
 * States: `held` → `settling` → `ended`, or `held` → `ended` when it is lost or fenced. A refused settlement goes back
 * to `held`. Exactly one settlement is ever sent for a claim that was not refused.
 */

import type { Settlement } from '../delivery.js'
import type { Claim, SettleCommand, SettleResult, SettleState } from '../driver.js'
import { type CancelledError, type HandlerTimeoutError, LeaseLostError, type MessageCancelledError } from '../errors.js'
import type { SettledAs } from '../events.js'
import { Eventual } from '../eventual.js'
import type { ClaimOwner } from './owner.js'
import type { Policy } from './policy.js'
import type { Rostered } from './roster.js'
import type { SettleListener } from './settler.js'

/** A settlement without the names of the claim. */
export type Command = SettleCommand extends infer C
  ? C extends SettleCommand
    ? Omit<C, 'id' | 'token'>
    : never
  : never

/** What a delivery's signal can carry. */
export type AbortReason = CancelledError | LeaseLostError | MessageCancelledError | HandlerTimeoutError

/** Who is told how a settlement ended: an `Eventual`, or less. */
interface Outcome {
  resolve(settlement: Settlement): void
  reject(error: unknown): void
}

/** Told what happens to a claim. */
export interface ClaimWatcher {
  claimAborted(claim: HeldClaim): void
  claimEnded(claim: HeldClaim): void
}

export class HeldClaim implements SettleListener, Rostered<HeldClaim> {
  roster: object | undefined
  before: HeldClaim | undefined
  after: HeldClaim | undefined
  state: 'held' | 'settling' | 'ended' = 'held'
  /** How it ended, once it has. */
  endedAs: SettledAs | undefined
  /** Monotonic instant until which the claim is surely ours. */
  deadline: number
  /** By our clock: the lease has ended then at the latest. */
  leaseUntil: number
  /** By our clock: until when an extension that is on its way asks; 0 when there is none. */
  extendingUntil = 0
  leaseExpiresAt: number
  /** When `maxLeaseMs` began to count: at the grant, and anew with each proof of life. */
  aliveAt: number
  stuck = false
  /** Its settlement was sent after the consumer was cancelled. */
  sentLate = false
  /** A loop was given it: leaving that loop gives it back at once. */
  inLoop = false
  /** Handed over to anybody; a claim that was not is released as if it had never been. */
  delivered = false
  progress: Uint8Array | undefined
  /** The failure policies, the one asked first last. */
  policies: Policy[] | undefined

  /** It was acked in a transaction of the caller's own, and whether that was committed is not known yet. */
  private ackedInTransaction = false
  private controller: AbortController | undefined
  private abortReason: AbortReason | undefined
  /** Nearly always there is one; a list for it would be half of what a claim costs. */
  private watcher: ClaimWatcher | undefined
  private moreWatchers: ClaimWatcher[] | undefined
  private outcome: Outcome | undefined
  private takenBack = false
  /** A settlement was sent and never confirmed. */
  private unknown = false
  private requested: Command['kind'] | undefined

  constructor(
    readonly claim: Claim,
    readonly owner: ClaimOwner,
    sentAt: number,
  ) {
    this.aliveAt = sentAt
    this.deadline = sentAt + claim.leaseMs - marginMs(claim.leaseMs)
    this.leaseUntil = owner.clock.now() + claim.leaseMs
    this.leaseExpiresAt = claim.leaseExpiresAt
  }

  /** Why its signal aborted, if it has. */
  get reason(): AbortReason | undefined {
    return this.abortReason
  }

  get signal(): AbortSignal {
    this.expireIfLate()
    if (!this.controller) {
      this.controller = new AbortController()
      if (this.abortReason) this.controller.abort(this.abortReason)
    }
    return this.controller.signal
  }

  /** Tells of an abort and of the end; at once of what has happened. */
  watch(watcher: ClaimWatcher): void {
    if (this.abortReason) watcher.claimAborted(this)
    if (this.state === 'ended') watcher.claimEnded(this)
    else if (this.watcher === undefined) this.watcher = watcher
    else if (this.moreWatchers) this.moreWatchers.push(watcher)
    else this.moreWatchers = [watcher]
  }

  /** Whether the lease is still surely ours; if not, it is given up here and now. */
  expireIfLate(): boolean {
    if (this.state !== 'held' || !this.late) return false
    this.lose(this.stuck ? 'capped' : 'expired')
    return true
  }

  /** Sends a settlement, unless one was or the claim is gone. */
  settle(command: Command): Eventual<Settlement> {
    const answer = this.answerWithout()
    if (answer) return Eventual.resolved(answer)
    const outcome = new Eventual<Settlement>()
    this.send(command, outcome)
    return outcome
  }

  /** The same without an answer; `refusal` is told of a refusal alone. */
  settleQuietly(command: Command, refusal: Outcome = NOBODY): void {
    if (!this.answerWithout()) this.send(command, refusal)
  }

  /** Whether the lease may have run out by now, if nobody renewed it. */
  get late(): boolean {
    return this.owner.clock.now() >= this.deadline
  }

  /**
   * Settles over the head of whoever holds the delivery, to whom it is stale from now on. Also past its deadline: the
   * store may still hold the claim, and it is the store that knows.
   */
  takeBack(command: Command): void {
    if (this.state !== 'held') return
    this.takenBack = true
    this.send(command, NOBODY)
  }

  /** The answer to a settlement that need not, or may not, be sent. */
  private answerWithout(): Settlement | undefined {
    if (this.state === 'held') return this.expireIfLate() ? 'stale' : undefined
    return this.takenBack || (this.endedAs === 'lost' && !this.unknown) ? 'stale' : 'already-settled'
  }

  /**
   * Settles once something else is done first, which may take its time or fail. The claim counts as settling from
   * now on; when the preparation fails it is held again, as if nothing had been asked.
   */
  settleAfter(prepared: Eventual<Command>): Eventual<Settlement> {
    const answer = this.answerWithout()
    if (answer) return Eventual.resolved(answer)
    const outcome = new Eventual<Settlement>()
    this.state = 'settling'
    this.outcome = outcome
    prepared.then(
      (command) => this.send(command, outcome),
      (error) => this.onSettled({ state: 'refused', error: error as Error }),
    )
    return outcome
  }

  /** Acks in a transaction of the caller's own. It counts when the store has been asked what became of that. */
  settleIn(ack: () => SettleResult): Settlement {
    const answer = this.answerWithout()
    if (answer) return answer
    // Asked even after an earlier one, which may have been rolled back.
    if (ack().state !== 'stale') {
      this.ackedInTransaction = true
      this.owner.confirm(this)
      return 'settled'
    }
    if (this.ackedInTransaction) return 'already-settled'
    this.lose('taken')
    return 'stale'
  }

  /** The transaction in which it was acked was rolled back: it is as if nobody had asked. */
  rolledBack(): void {
    this.ackedInTransaction = false
  }

  /** Whether a settlement was asked for, or the claim is gone. */
  get settled(): boolean {
    return this.state !== 'held' || this.ackedInTransaction
  }

  /** The store does not hold the claim any more: by the caller's own ack, or because somebody else took it away. */
  gone(): void {
    if (this.state === 'ended') return
    if (!this.ackedInTransaction || this.late) return this.lose('taken')
    this.end('acked')
    this.owner.onEnded(this)
  }

  /** Nobody will settle it any more: it is not renewed, and lapses with its lease. */
  giveUp(error: unknown): void {
    if (this.state === 'held') this.onUnsettled(error)
  }

  /** Confirms a renewal that was sent at `sentAt`. */
  renewed(sentAt: number, leaseMs: number, leaseExpiresAt: number): void {
    this.deadline = sentAt + leaseMs - marginMs(leaseMs)
    this.leaseUntil = this.owner.clock.now() + leaseMs
    this.leaseExpiresAt = leaseExpiresAt
  }

  /** The claim is not ours any more, or cannot be known to be. */
  lose(why: LeaseLostError['why']): void {
    if (this.state === 'ended') return
    this.end('lost', new LeaseLostError(this.claim.id, why))
    this.owner.onLost(this, why)
  }

  abort(reason: AbortReason): void {
    if (this.abortReason) return
    this.abortReason = reason
    this.controller?.abort(reason)
    this.watcher?.claimAborted(this)
    if (this.moreWatchers) for (const watcher of [...this.moreWatchers]) watcher.claimAborted(this)
  }

  onSettled(result: SettleResult): void {
    if (this.state === 'ended') return
    const outcome = this.outcome
    if (result.state === 'refused') {
      // Nobody would try again.
      if (this.takenBack) return this.onUnsettled(result.error)
      this.state = 'held'
      this.outcome = undefined
      this.owner.onRefused(this)
      outcome?.reject(result.error)
      return
    }
    if (result.state === 'stale') {
      this.gone()
      outcome?.resolve(this.endedAs === 'acked' ? 'already-settled' : 'stale')
      return
    }
    this.end(endOf(result.state, this.requested))
    this.owner.onEnded(this)
    outcome?.resolve('settled')
  }

  onUnsettled(error: unknown): void {
    if (this.state === 'ended') return
    this.unknown = true
    this.end('lost', new LeaseLostError(this.claim.id, 'expired'))
    this.owner.onUnknown(this, error)
    this.outcome?.reject(error)
  }

  private send(command: Command, outcome: Outcome): void {
    this.state = 'settling'
    this.sentLate = this.owner.late
    this.requested = command.kind
    this.outcome = outcome
    this.owner.send(this.named(command), this)
  }

  private named(command: Command): SettleCommand {
    const { id, token } = this.claim
    // Spelled out for the one that nearly all are: spreading it costs more than all else that sending does.
    if (command.kind === 'ack' && command.result === undefined && command.carry === undefined)
      return { id, token, kind: 'ack' }
    return { ...command, id, token }
  }

  /** Whoever watches is told of the abort first: a handler that can be ended is, also when the claim ends with it. */
  private end(as: SettledAs, reason?: AbortReason): void {
    this.state = 'ended'
    this.endedAs = as
    if (reason) this.abort(reason)
    const { watcher, moreWatchers } = this
    this.watcher = undefined
    this.moreWatchers = undefined
    watcher?.claimEnded(this)
    if (moreWatchers) for (const more of moreWatchers) more.claimEnded(this)
  }
}

const NOBODY: Outcome = { resolve: () => {}, reject: () => {} }

/**
 * What is taken off a lease, since clocks of two machines do not run at exactly the same rate and a settlement takes
 * its time to get there.
 */
function marginMs(leaseMs: number): number {
  return Math.min(leaseMs / 10, 1_000)
}

function endOf(state: Exclude<SettleState, 'stale' | 'refused'>, requested: Command['kind'] | undefined): SettledAs {
  switch (state) {
    case 'acked':
      return 'acked'
    case 'forwarded':
      return requested === 'dead-letter' ? 'dead-lettered' : 'acked'
    case 'dead':
      return 'dead-lettered'
    case 'cancelled':
      return 'cancelled'
    default:
      return requested === 'release' ? 'released' : 'requeued'
  }
}
