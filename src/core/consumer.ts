/**
 * A consumer: one subscription to a queue, and the claim loop that feeds it.
 *
 * Intake, while open:
 *
 *     idle ──demand──▶ claiming ──granted──▶ idle          (again at once while demand is left)
 *                         │
 *                         └──fewer than asked──▶ parked ──hint, due timer, slow poll──▶ claiming
 *
 * How it ends is told in `stopping.ts`.
 *
 * A claim request is never abandoned: whatever a late answer grants is released, newest first.
 */
import type { Backend, Claim, ClaimReply, Hint, QueueDriver, SettleCommand } from '../driver.js'
import { CancelledError, type CancelPhase, type DecodeError, type LeaseLostError } from '../errors.js'
import type { Released, SourceEvent, Summary } from '../events.js'
import { Eventual } from '../eventual.js'
import { Account } from './account.js'
import { ClaimCall, type ClaimListener, type ClaimTerms } from './claim-call.js'
import type { Timer } from './clock.js'
import { DeliveryHandle } from './delivery-handle.js'
import { HeldClaim } from './held-claim.js'
import type { Hub, HubMember } from './hub.js'
import { Inbox, type InboxOwner } from './inbox.js'
import { LeaseKeeper } from './leases.js'
import type { ClaimOwner } from './owner.js'
import { describeReason } from './policy.js'
import { Roster } from './roster.js'
import type { Member, Scope } from './scope.js'
import type { SettleListener } from './settler.js'
import { type StepBounds, type Stoppable, Stopping } from './stopping.js'
import { ends, type Until } from './until.js'

/** The most claims of one request. */
const LARGEST_CLAIM = 1_000
/** How often a source that ends when all is idle looks whether it is. */
const LOOK_AGAIN_MS = 200

export interface ConsumerOptions extends ClaimTerms {
  readonly until: Until | undefined
  readonly drainMs: number
  readonly graceMs: number
  readonly maxLeaseMs: number
}

/** Where a consumer's deliveries go. */
export interface ConsumerObserver<T> {
  next(delivery: DeliveryHandle<T>): void
  error(error: unknown): void
  complete(): void
}

export interface StopOptions extends StepBounds {
  /** The caller's own reason; becomes the cause of what signals carry. */
  readonly reason?: unknown
  /** How the stream ends for its observer. */
  readonly ending: 'complete' | 'silent' | { readonly error: (cancelled: CancelledError) => unknown }
}

/** How a consumer is wired to the rest. */
export interface ConsumerContext<T> {
  readonly hub: Hub
  readonly scope: Scope | undefined
  /** Throws, or rejects, for bytes that are no payload of this queue. */
  decode(bytes: Uint8Array): T | Eventual<T>
  readonly observed: boolean
  emit(event: SourceEvent): void
}

type Intake = 'idle' | 'claiming' | 'parked'

export class Consumer<T> implements ClaimOwner, HubMember, InboxOwner<T>, ClaimListener, Stoppable, Member {
  readonly closed = new Eventual<Released>()
  readonly held = new Roster<HeldClaim>()
  readonly kind: string
  readonly hub: Hub

  private intake: Intake = 'idle'
  private demand = 0
  /** What will be asked for when the settlements that are on their way are confirmed. */
  private foreseen = 0
  /** Its last claim was given up before the store looked: nobody knows whether anything was ready. */
  withdrawn = false
  private readonly inbox = new Inbox<T>(this)
  private readonly call: ClaimCall
  /** Which hint was the last when the claim was sent: a later one may tell of what it missed. */
  private claimedAtEpoch = 0
  private woken = false
  private lookAgain: Timer | undefined
  private ending: StopOptions['ending'] = 'silent'
  private cancelled: CancelledError | undefined
  private down = false
  private readonly leases: LeaseKeeper
  private readonly account = new Account()
  private readonly stopping = new Stopping(this)

  constructor(
    private readonly context: ConsumerContext<T>,
    private readonly options: ConsumerOptions,
    private readonly observer: ConsumerObserver<T>,
  ) {
    this.hub = context.hub
    this.kind = `${options.group ?? ''}\u0000${options.partition ?? ''}`
    this.leases = new LeaseKeeper(this, options)
    this.call = new ClaimCall(this.hub, options, this)
    this.hub.join(this)
    context.scope?.adopt(this)
  }

  get clock() {
    return this.hub.clock
  }

  get queue(): string {
    return this.hub.queue
  }

  get backend(): Backend {
    return this.hub.backend
  }

  get driver(): QueueDriver {
    return this.hub.driver
  }

  get summary(): Summary {
    return this.account.summary
  }

  /** Whether it still takes in messages. */
  get open(): boolean {
    return this.stopping.life === 'open'
  }

  get late(): boolean {
    return this.stopping.late
  }

  /** How many deliveries are out and not settled. */
  get unsettled(): number {
    return this.held.size - this.inbox.size
  }

  /** Asks for `n` more deliveries. */
  request(n: number): void {
    if (!this.open) return
    this.demand += n
    this.foreseen = Math.max(0, this.foreseen - n)
    if (this.intake === 'idle' && this.inbox.size === 0) this.hub.soon(this)
    else this.deliver()
  }

  /** `n` more will be asked for when the settlements of this turn are confirmed. */
  foresee(n: number): void {
    if (!this.open || !this.backend.features.ordered) return
    this.foreseen += n
    this.hub.soon(this)
  }

  pump(): void {
    if (!this.open || this.intake !== 'idle' || this.wanted === 0 || this.inbox.size > 0) return
    this.intake = 'claiming'
    const ready = this.hub.ready()
    if (ready.fulfilled) return this.claim()
    ready.listen(
      () => this.claim(),
      (error) => this.break(error),
    )
  }

  wake(): void {
    if (this.intake !== 'parked') return
    this.lookAgain?.stop()
    this.woken = true
    this.intake = 'idle'
    this.hub.soon(this)
  }

  /**
   * Stops. Repeating it can only make it sooner: smaller bounds replace larger ones.
   * Fulfils when everything is back in the store, or known not to be; never rejects.
   */
  stop(options: StopOptions): Eventual<Released> {
    if (this.open) this.begin(options)
    else this.hasten(options)
    return this.closed
  }

  /** The loop that was given these deliveries has been left: they go back at once, counted unless we were cancelled. */
  leaveLoop(): void {
    for (const claim of [...this.held]) {
      if (claim.inLoop && claim.state === 'held') this.giveBackSeen(claim)
    }
  }

  // --- ClaimOwner

  send(command: SettleCommand, listener: SettleListener): void {
    this.hub.settler.push(command, listener)
    this.hub.turnSoon()
  }

  onEnded(claim: HeldClaim): void {
    this.leases.alive()
    const as = claim.endedAs ?? 'lost'
    this.account.settled(as, claim.sentLate || this.late)
    if (this.context.observed) this.emit({ type: 'settled', id: claim.claim.id, as })
    this.drop(claim)
  }

  onLost(claim: HeldClaim, why: LeaseLostError['why']): void {
    this.account.lost()
    // By our clock alone: the store may hold the claim a little longer, and nobody can give it back any more.
    if (!this.open && why !== 'taken') this.account.abandoned(1)
    this.emit({ type: why === 'taken' ? 'lease-lost' : 'lease-expired', id: claim.claim.id })
    this.drop(claim)
  }

  onUnknown(claim: HeldClaim, error: unknown): void {
    if (this.open) this.account.lost()
    else this.account.abandoned(1)
    this.emit({ type: 'error', error })
    this.drop(claim)
  }

  onRefused(claim: HeldClaim): void {
    if (this.stopping.life === 'closing') this.release(claim)
  }

  extend(claim: HeldClaim, ms: number): Eventual<'extended' | 'stale' | 'capped'> {
    return this.leases.extend(claim, ms)
  }

  confirm(claim: HeldClaim): void {
    this.clock.soon(() => this.leases.confirm(claim))
  }

  progressed(claim: HeldClaim, value: unknown): void {
    this.emit({ type: 'progress', id: claim.claim.id, value })
  }

  // --- events

  onHint(hint: Hint): void {
    if (hint.kind !== 'cancel') return
    this.leases.check([...this.held].filter(({ claim }) => claim.id === hint.id))
  }

  onDown(error: unknown): void {
    if (this.down) return
    this.down = true
    this.emit({ type: 'reconnecting', error })
  }

  onUp(): void {
    if (!this.down) return
    this.down = false
    this.emit({ type: 'reconnected' })
  }

  onStalled(): void {
    const { first: oldest } = this.held
    // A source with an end waits for what is out, however much more it would take.
    if (oldest && (this.demand === 0 || this.options.until !== undefined))
      this.emit({ type: 'stalled', oldestUnsettledId: oldest.claim.id })
  }

  emit(event: SourceEvent): void {
    if (this.context.observed) this.context.emit(event)
  }

  // --- intake

  private get wanted(): number {
    return this.demand + this.foreseen
  }

  private claim(): void {
    if (!this.open || this.wanted === 0) {
      this.intake = 'idle'
      return this.passOnWake()
    }
    this.woken = false
    const asked = Math.min(this.wanted, LARGEST_CLAIM)
    this.claimedAtEpoch = this.hub.epoch
    this.call.send(asked)
  }

  onGranted(reply: ClaimReply, asked: number, sentAt: number): void {
    if (this.intake === 'claiming') this.intake = 'idle'
    if (reply.withdrawn) this.withdrawn = true
    for (const claim of reply.claims) this.inbox.add(this.hold(claim, sentAt))
    if (!this.open) {
      this.releaseUnseen()
      return this.stopping.settleDown()
    }
    if (reply.claims.length > 0) this.emit({ type: 'claimed', count: reply.claims.length })
    this.hub.dueIn(reply.nextDueMs)
    const full = reply.claims.length >= asked
    if (full) this.hub.waiting.wakeNext(this.kind)
    this.deliver()
    if (!this.open || this.intake !== 'idle') return
    if (full || this.hub.epoch !== this.claimedAtEpoch) this.goOn()
    else this.foundEmpty(reply)
  }

  onClaimFailed(error: unknown, asked: number): void {
    this.intake = 'idle'
    if (this.open) return this.break(error)
    // No answer within the bound: whatever it granted lapses by itself.
    this.account.abandoned(asked)
    this.stopping.settleDown()
  }

  private goOn(): void {
    if (this.demand > 0) this.hub.soon(this)
  }

  /** The queue had less than we asked for. */
  private foundEmpty(reply: ClaimReply): void {
    const { until } = this.options
    // The store stopped before all that is due was done: there may be more.
    if (reply.nextDueMs === 0) return this.hub.soon(this)
    if (until === 'try') return this.finish()
    this.intake = 'parked'
    this.hub.waiting.enter(this)
    if (until === undefined) return
    ends(until, reply, this.hub, () => this.held.size === 0 && this.intake === 'parked').listen(
      (end) => this.looked(end),
      (error) => this.break(error),
    )
  }

  /** Whether this is the end was looked up. What others still hold or delay gives no hint when it ends, so look again. */
  private looked(end: boolean): void {
    if (!this.open || this.intake !== 'parked' || this.held.size > 0) return
    this.lookAgain?.stop()
    if (end) this.finish()
    else this.lookAgain = this.clock.after(LOOK_AGAIN_MS, () => this.wakeUp())
  }

  private finish(): void {
    this.stop({ ending: 'complete' })
  }

  private break(error: unknown): void {
    if (this.intake === 'claiming') this.intake = 'idle'
    this.emit({ type: 'error', error })
    this.stop({ ending: { error: () => error } })
  }

  private passOnWake(): void {
    if (!this.woken) return
    this.woken = false
    this.hub.waiting.wakeNext(this.kind)
  }

  private hold(claim: Claim, sentAt: number): HeldClaim {
    const held = new HeldClaim(claim, this, sentAt)
    this.held.add(held)
    this.leases.start(sentAt)
    return held
  }

  // --- hand-over

  get wants(): boolean {
    return this.demand > 0 && this.open
  }

  decode(bytes: Uint8Array): T | Eventual<T> {
    return this.context.decode(bytes)
  }

  handOver(claim: HeldClaim, payload: T): void {
    this.demand -= 1
    claim.delivered = true
    const delivery = new DeliveryHandle<T>(claim, payload)
    if (this.context.observed) this.emit({ type: 'delivered', id: delivery.id, attempt: delivery.attempt })
    if (claim.claim.cancelRequested) this.leases.check([claim])
    // What was taken is never delivered again, also when its ack is refused.
    if (this.options.take)
      claim.settleQuietly({ kind: 'ack' }, { resolve: () => {}, reject: (error) => claim.giveUp(error) })
    this.observer.next(delivery)
  }

  onPoison(claim: HeldClaim, error: DecodeError): void {
    this.emit({ type: 'decode-failed', id: claim.claim.id, error })
    claim.takeBack({ kind: 'dead-letter', reason: describeReason(error) })
  }

  onDecoded(): void {
    this.deliver()
  }

  private deliver(): void {
    this.inbox.deliver()
    if (this.inbox.size === 0 && this.wants && this.intake === 'idle') this.hub.soon(this)
  }

  // --- stopping

  get claiming(): boolean {
    return this.call.pending
  }

  releaseUnseen(): void {
    for (const claim of this.inbox.empty()) this.release(claim)
  }

  release(claim: HeldClaim): void {
    this.emit({ type: 'released', id: claim.claim.id })
    claim.takeBack({ kind: 'release', delivered: claim.delivered })
  }

  onClosed(): void {
    this.leases.stop()
    this.hub.leave(this)
    this.closed.resolve(this.account.released)
    const notify = () => this.notifyEnd()
    if (this.context.scope) this.context.scope.run(notify)
    else notify()
  }

  private begin(options: StopOptions): void {
    this.ending = options.ending
    this.demand = 0
    this.foreseen = 0
    this.cancelled = new CancelledError(
      this.phase(),
      options.reason === undefined ? undefined : { cause: options.reason },
    )
    this.hub.waiting.leave(this)
    this.lookAgain?.stop()
    this.passOnWake()
    this.stopping.begin(
      this.cancelled,
      options.drainMs ?? this.options.drainMs,
      options.graceMs ?? this.options.graceMs,
    )
    this.call.limit(this.stopping.graceMs)
  }

  private hasten(options: StopOptions): void {
    if (this.ending === 'silent') this.ending = options.ending
    this.stopping.hasten(options)
    this.call.limit(this.stopping.graceMs)
  }

  /** What the cancel finds this consumer doing. */
  private phase(): CancelPhase {
    if (this.unsettled > 0) return 'handling'
    return this.intake === 'claiming' ? 'claiming' : 'idle'
  }

  private notifyEnd(): void {
    const { ending } = this
    if (ending === 'silent') return
    if (ending === 'complete') this.observer.complete()
    else this.observer.error(ending.error(this.cancelled as CancelledError))
  }

  private giveBackSeen(claim: HeldClaim): void {
    if (this.open) claim.takeBack({ kind: 'requeue', delayMs: 0, countAttempt: true })
    else claim.takeBack({ kind: 'release', delivered: true })
  }

  private drop(claim: HeldClaim): void {
    this.held.delete(claim)
    if (!this.open) this.stopping.settleDown()
    else if (this.held.size === 0 && this.options.until !== undefined && this.intake === 'parked') this.wakeUp()
  }

  /** With nothing left in flight, a source with an end has to look whether this is it. */
  private wakeUp(): void {
    this.hub.waiting.leave(this)
    this.wake()
  }
}
