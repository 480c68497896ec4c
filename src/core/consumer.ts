/**
 * A consumer: one subscription to a queue, what it holds, and the account of it. How it claims is told in `intake.ts`,
 * how it ends in `stopping.ts`.
 */
import type { Backend, Claim, Hint, QueueDriver, SettleCommand } from '../driver.js'
import { CancelledError, type CancelPhase, type DecodeError, type LeaseLostError } from '../errors.js'
import type { Released, SourceEvent, Summary } from '../events.js'
import { Eventual } from '../eventual.js'
import { Account } from './account.js'
import { DeliveryHandle } from './delivery-handle.js'
import { HeldClaim } from './held-claim.js'
import type { Hub } from './hub.js'
import { Intake, type IntakeOptions, type IntakeOwner } from './intake.js'
import { LeaseKeeper } from './leases.js'
import type { ClaimOwner } from './owner.js'
import { describeReason } from './policy.js'
import { Roster } from './roster.js'
import type { Member, Scope } from './scope.js'
import type { SettleListener } from './settler.js'
import { type StepBounds, type Stoppable, Stopping } from './stopping.js'

export interface ConsumerOptions extends IntakeOptions {
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

export class Consumer<T> implements ClaimOwner, IntakeOwner<T>, Stoppable, Member {
  readonly closed = new Eventual<Released>()
  readonly held = new Roster<HeldClaim>()
  readonly kind: string
  readonly hub: Hub

  private readonly intake: Intake<T>
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
    this.intake = new Intake<T>(this, options)
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
    return this.held.size - this.intake.size
  }

  get quiet(): boolean {
    return this.held.size === 0
  }

  /** Nobody knows whether anything was ready: the last claim was given up before the store looked. */
  get withdrawn(): boolean {
    return this.intake.withdrawn
  }

  /** Asks for `n` more deliveries. */
  request(n: number): void {
    if (this.open) this.intake.request(n)
  }

  /** `n` more will be asked for when the settlements of this turn are confirmed. */
  foresee(n: number): void {
    if (this.open) this.intake.foresee(n)
  }

  pump(): void {
    this.intake.pump()
  }

  wake(): void {
    this.intake.wake()
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
    if (hint.kind === 'lease') this.emit({ type: 'lease', state: hint.state })
    if (hint.kind !== 'cancel') return
    this.intake.onCancelHint(hint.id)
    this.leases.check([...this.held].filter(({ claim }) => claim.id === hint.id))
  }

  onDown(error: unknown): void {
    if (this.down) return
    this.down = true
    this.emit({ type: 'reconnecting', error })
  }

  /** Hints were missed: one of them may have been of a cancel. */
  onHintsMissed(): void {
    this.leases.checkAll()
  }

  onUp(): void {
    if (!this.down) return
    this.down = false
    this.emit({ type: 'reconnected' })
  }

  onStalled(): void {
    const { first: oldest } = this.held
    // A source with an end waits for what is out, however much more it would take.
    if (oldest && (this.intake.demand === 0 || this.options.until !== undefined))
      this.emit({ type: 'stalled', oldestUnsettledId: oldest.claim.id })
  }

  emit(event: SourceEvent): void {
    if (this.context.observed) this.context.emit(event)
  }

  // --- intake

  hold(claim: Claim, sentAt: number): HeldClaim {
    const held = new HeldClaim(claim, this, sentAt)
    this.held.add(held)
    this.leases.start(sentAt)
    return held
  }

  finish(): void {
    this.stop({ ending: 'complete' })
  }

  break(error: unknown): void {
    this.emit({ type: 'error', error })
    this.stop({ ending: { error: () => error } })
  }

  onLastClaim(abandoned: number): void {
    this.account.abandoned(abandoned)
    this.stopping.settleDown()
  }

  // --- hand-over

  decode(bytes: Uint8Array): T | Eventual<T> {
    return this.context.decode(bytes)
  }

  handOver(claim: HeldClaim, payload: T): void {
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

  // --- stopping

  get claiming(): boolean {
    return this.intake.claiming
  }

  releaseUnseen(): void {
    this.intake.releaseUnseen()
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
    this.cancelled = new CancelledError(
      this.phase(),
      options.reason === undefined ? undefined : { cause: options.reason },
    )
    this.intake.close()
    this.stopping.begin(
      this.cancelled,
      options.drainMs ?? this.options.drainMs,
      options.graceMs ?? this.options.graceMs,
    )
    this.intake.limit(this.stopping.graceMs)
  }

  private hasten(options: StopOptions): void {
    if (this.ending === 'silent') this.ending = options.ending
    this.stopping.hasten(options)
    this.intake.limit(this.stopping.graceMs)
  }

  /** What the cancel finds this consumer doing. */
  private phase(): CancelPhase {
    if (this.unsettled > 0) return 'handling'
    return this.intake.state === 'claiming' ? 'claiming' : 'idle'
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
    else if (this.quiet) this.intake.onQuiet()
  }
}
