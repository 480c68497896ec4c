/**
 * A consumer: one subscription to a queue, and the claim loop that feeds it.
 *
 * Intake, while open:
 *
 *     idle ──demand──▶ claiming ──granted──▶ idle          (again at once while demand is left)
 *                         │
 *                         └──fewer than asked──▶ parked ──hint, due timer, slow poll──▶ claiming
 *
 * Life:
 *
 *     open ──stop──▶ draining ──drainMs──▶ grace ──graceMs──▶ closing ──all answers in──▶ closed
 *
 * - `draining`: intake has stopped, handlers go on undisturbed; what was claimed but not handed over is released.
 * - `grace`: the signals of what is still held have aborted; its settlements count, its leases are renewed.
 * - `closing`: what was still held is released and fenced; only answers of the store are awaited, each within a bound.
 *
 * Each step is skipped when nothing is held, so that stopping an idle consumer is done before `stop` returns.
 * A claim request is never abandoned: whatever a late answer grants is released, newest first.
 */
import type { Claim, ClaimReply, ClaimRequest, Hint, RequestToken, SettleCommand } from '../driver.js'
import { CancelledError, type CancelPhase, DecodeError, LeaseLostError } from '../errors.js'
import type { Released, SettledAs, SourceEvent, Summary } from '../events.js'
import { Eventual } from '../eventual.js'
import { DeliveryHandle } from './delivery-handle.js'
import { HeldClaim } from './held-claim.js'
import type { Hub, HubMember } from './hub.js'
import { LeaseKeeper } from './leases.js'
import type { ClaimOwner } from './owner.js'
import { describeReason } from './policy.js'
import { ask, type Request } from './request.js'
import type { Member, Scope } from './scope.js'
import { SETTLE_BOUND_MS, type SettleListener } from './settler.js'
import { ends, type Until } from './until.js'

/** The most claims of one request. */
const LARGEST_CLAIM = 1_000

export interface ConsumerOptions {
  /** At most once: acked as it is handed over. */
  readonly take: boolean
  readonly group: string | undefined
  readonly partition: string | undefined
  readonly until: Until | undefined
  readonly drainMs: number
  readonly graceMs: number
  readonly leaseMs: number
  readonly maxLeaseMs: number
  readonly label: string
}

/** Where a consumer's deliveries go. */
export interface ConsumerObserver<T> {
  next(delivery: DeliveryHandle<T>): void
  error(error: unknown): void
  complete(): void
}

export interface StopOptions {
  readonly drainMs?: number | undefined
  readonly graceMs?: number | undefined
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
type Life = 'open' | 'draining' | 'grace' | 'closing' | 'closed'

export class Consumer<T> implements ClaimOwner, HubMember, Member {
  readonly closed = new Eventual<Released>()
  readonly held = new Set<HeldClaim>()
  readonly kind: string
  readonly hub: Hub

  private intake: Intake = 'idle'
  private life: Life = 'open'
  private demand = 0
  private inbox: HeldClaim[] = []
  private decoding = false
  private claimRequest: Request<ClaimReply> | undefined
  private woken = false
  private ending: StopOptions['ending'] = 'silent'
  private cancelled: CancelledError | undefined
  private stepTimer: { stop(): void } | undefined
  private graceMs = 0
  private down = false
  private readonly leases: LeaseKeeper
  private readonly account = {
    acked: 0,
    requeued: 0,
    deadLettered: 0,
    lost: 0,
    released: 0,
    settledDuringGrace: 0,
    abandoned: 0,
  }

  constructor(
    private readonly context: ConsumerContext<T>,
    private readonly options: ConsumerOptions,
    private readonly observer: ConsumerObserver<T>,
  ) {
    this.hub = context.hub
    this.kind = `${options.group ?? ''}\u0000${options.partition ?? ''}`
    this.leases = new LeaseKeeper(this, options)
    this.hub.join(this)
    context.scope?.adopt(this)
  }

  get clock() {
    return this.hub.clock
  }

  get queue(): string {
    return this.hub.queue
  }

  get backend(): object {
    return this.hub.backend
  }

  get summary(): Summary {
    return { ...this.account }
  }

  /** Whether it still takes in messages. */
  get open(): boolean {
    return this.life === 'open'
  }

  /** How many deliveries are out and not settled. */
  get unsettled(): number {
    return this.held.size
  }

  /** Asks for `n` more deliveries. */
  request(n: number): void {
    if (this.life !== 'open') return
    this.demand += n
    if (this.intake === 'idle' && this.inbox.length === 0) this.hub.soon(this)
    else this.deliver()
  }

  pump(): void {
    if (this.life !== 'open' || this.intake !== 'idle' || this.demand === 0 || this.inbox.length > 0) return
    this.intake = 'claiming'
    this.hub.ready().listen(
      () => this.claim(),
      (error) => this.break(error),
    )
  }

  wake(): void {
    if (this.intake !== 'parked') return
    this.woken = true
    this.intake = 'idle'
    this.hub.soon(this)
  }

  /**
   * Stops. Repeating it can only make it sooner: smaller bounds replace larger ones.
   * Fulfils when everything is back in the store, or known not to be; never rejects.
   */
  stop(options: StopOptions): Eventual<Released> {
    if (this.life === 'open') this.begin(options)
    else this.hasten(options)
    return this.closed
  }

  /** The loop that was given these deliveries has been left: they go back at once, counted unless we were cancelled. */
  leaveLoop(): void {
    for (const claim of [...this.held]) {
      if (claim.inLoop && claim.state === 'held') this.giveBackSeen(claim)
    }
  }

  /** An operator took this delivery and cannot show it to anybody any more. */
  static giveBackUnseen(claim: HeldClaim): void {
    claim.settleQuietly({ kind: 'release', delivered: false })
  }

  // --- ClaimOwner

  send(command: SettleCommand, listener: SettleListener): void {
    this.hub.settler.push(command, listener)
    this.hub.turnSoon()
  }

  onEnded(claim: HeldClaim): void {
    this.leases.alive(claim.confirmedAt)
    const as = claim.endedAs ?? 'lost'
    this.count(as)
    if (this.context.observed) this.emit({ type: 'settled', id: claim.claim.id, as })
    this.drop(claim)
  }

  onLost(claim: HeldClaim, why: LeaseLostError['why']): void {
    this.account.lost += 1
    this.emit({ type: why === 'taken' ? 'lease-lost' : 'lease-expired', id: claim.claim.id })
    this.drop(claim)
  }

  onUnknown(claim: HeldClaim, error: unknown): void {
    if (this.life === 'open') this.account.lost += 1
    else this.account.abandoned += 1
    claim.abort(new LeaseLostError(claim.claim.id, 'expired'))
    this.emit({ type: 'error', error })
    this.drop(claim)
  }

  onRefused(claim: HeldClaim): void {
    if (this.life === 'closing') this.fence(claim)
  }

  extend(claim: HeldClaim, ms: number): Eventual<'extended' | 'stale' | 'capped'> {
    return this.leases.extend(claim, ms)
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
    const oldest = this.held.values().next().value
    if (oldest && this.demand === 0) this.emit({ type: 'stalled', oldestUnsettledId: oldest.claim.id })
  }

  emit(event: SourceEvent): void {
    if (this.context.observed) this.context.emit(event)
  }

  // --- intake

  private claim(): void {
    if (this.life !== 'open' || this.demand === 0) {
      this.intake = 'idle'
      return this.passOnWake()
    }
    this.woken = false
    const asked = Math.min(this.demand, LARGEST_CLAIM)
    const epoch = this.hub.epoch
    const sentAt = this.clock.now()
    ask(
      this.hub,
      (token) => this.hub.driver.claim(this.claimOf(token, asked)),
      undefined,
      (request) => {
        this.claimRequest = request
      },
    ).listen(
      (reply) => this.granted(reply, asked, epoch, sentAt),
      (error) => this.refused(error, asked),
    )
  }

  private claimOf(token: RequestToken, max: number): ClaimRequest {
    const { take, leaseMs, label: consumer, group, partition } = this.options
    if (group === undefined && partition === undefined) return { token, max, leaseMs, take, consumer }
    return { token, max, leaseMs, take, consumer, ...(group !== undefined && { group }), ...(partition !== undefined && { partition }) }
  }

  private granted(reply: ClaimReply, asked: number, epoch: number, sentAt: number): void {
    this.claimRequest = undefined
    if (this.intake === 'claiming') this.intake = 'idle'
    for (const claim of reply.claims) this.inbox.push(this.hold(claim, sentAt))
    if (this.life !== 'open') {
      this.releaseInbox()
      return this.settleDown()
    }
    if (reply.claims.length > 0) this.emit({ type: 'claimed', count: reply.claims.length })
    this.hub.dueIn(reply.nextDueMs)
    const full = reply.claims.length >= asked
    if (full) this.hub.waiting.wakeNext(this.kind)
    this.deliver()
    if (!this.open || this.intake !== 'idle') return
    if (full || this.hub.epoch !== epoch) this.goOn()
    else this.foundEmpty(reply)
  }

  private refused(error: unknown, asked: number): void {
    this.claimRequest = undefined
    this.intake = 'idle'
    if (this.life === 'open') return this.break(error)
    // No answer within the bound: whatever it granted lapses by itself.
    this.account.abandoned += asked
    this.settleDown()
  }

  private goOn(): void {
    if (this.demand > 0) this.hub.soon(this)
  }

  /** The queue had less than we asked for. */
  private foundEmpty(reply: ClaimReply): void {
    const { until } = this.options
    if (until === 'try') return this.finish()
    this.intake = 'parked'
    this.hub.waiting.enter(this)
    if (until === undefined) return
    ends(until, reply, this.hub, () => this.held.size === 0 && this.intake === 'parked').then(
      (end) => {
        if (end && this.open && this.intake === 'parked' && this.held.size === 0) this.finish()
      },
      (error) => this.break(error),
    )
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
    this.leases.start()
    return held
  }

  // --- hand-over

  /** Hands over what was claimed while somebody wants it. */
  private deliver(): void {
    while (this.demand > 0 && this.inbox.length > 0 && !this.decoding && this.life === 'open') {
      const claim = this.inbox[0] as HeldClaim
      if (claim.state !== 'held' || claim.expireIfLate()) {
        this.inbox.shift()
        continue
      }
      this.decode(claim)
    }
    if (this.inbox.length === 0 && this.demand > 0 && this.life === 'open' && this.intake === 'idle')
      this.hub.soon(this)
  }

  private decode(claim: HeldClaim): void {
    let payload: T | Eventual<T>
    try {
      payload = this.context.decode(claim.claim.bytes)
    } catch (error) {
      return this.poisoned(claim, error)
    }
    if (!(payload instanceof Eventual)) return this.handOver(claim, payload)
    this.decoding = true
    payload.then(
      (value) => this.decoded(() => this.handOver(claim, value)),
      (error) => this.decoded(() => this.poisoned(claim, error)),
    )
  }

  private decoded(work: () => void): void {
    this.decoding = false
    if (this.life !== 'open') return
    work()
    this.deliver()
  }

  private handOver(claim: HeldClaim, payload: T): void {
    this.inbox.shift()
    if (claim.state !== 'held') return
    this.demand -= 1
    claim.delivered = true
    const delivery = new DeliveryHandle<T>(claim, payload)
    if (this.context.observed) this.emit({ type: 'delivered', id: delivery.id, attempt: delivery.attempt })
    if (claim.claim.cancelRequested) this.leases.check([claim])
    if (this.options.take) claim.settleQuietly({ kind: 'ack' })
    this.observer.next(delivery)
  }

  private poisoned(claim: HeldClaim, cause: unknown): void {
    this.inbox.shift()
    const error = new DecodeError(`message ${claim.claim.id} cannot be decoded: ${describeReason(cause)}`, { cause })
    this.emit({ type: 'decode-failed', id: claim.claim.id, error })
    claim.settleQuietly({ kind: 'dead-letter', reason: describeReason(error) })
  }

  // --- stopping

  private begin(options: StopOptions): void {
    this.life = 'draining'
    this.demand = 0
    this.ending = options.ending
    const phase: CancelPhase =
      this.held.size > this.inbox.length ? 'handling' : this.intake === 'claiming' ? 'claiming' : 'idle'
    this.cancelled = new CancelledError(phase, options.reason === undefined ? undefined : { cause: options.reason })
    this.graceMs = options.graceMs ?? this.options.graceMs
    this.claimRequest?.limit(Math.min(this.lapseMs(this.claimRequest), this.graceMs + SETTLE_BOUND_MS))
    this.hub.waiting.leave(this)
    this.passOnWake()
    this.releaseInbox()
    this.drain(options.drainMs ?? this.options.drainMs)
  }

  private drain(drainMs: number): void {
    if (!this.holding()) return this.toClosing()
    if (drainMs <= 0) return this.toGrace()
    this.stepTimer = this.clock.after(drainMs, () => this.toGrace())
  }

  private toGrace(): void {
    this.stepTimer?.stop()
    this.life = 'grace'
    for (const claim of [...this.held]) {
      if (claim.state === 'held') claim.abort(this.cancelled as CancelledError)
    }
    this.armGrace()
  }

  private armGrace(): void {
    this.stepTimer?.stop()
    // A handler may have settled, synchronously, when its signal aborted.
    if (!this.holding()) return this.toClosing()
    if (this.graceMs <= 0) return this.toClosing()
    this.stepTimer = this.clock.after(this.graceMs, () => this.toClosing())
  }

  private toClosing(): void {
    if (this.life === 'closing' || this.life === 'closed') return
    this.stepTimer?.stop()
    this.life = 'closing'
    for (const claim of [...this.held].reverse()) {
      if (claim.state !== 'held') continue
      claim.abort(this.cancelled as CancelledError)
      this.fence(claim)
    }
    this.settleDown()
  }

  private hasten(options: StopOptions): void {
    if (options.ending !== 'silent' && this.ending === 'silent') this.ending = options.ending
    if (options.drainMs === undefined && options.graceMs === undefined) return
    this.graceMs = Math.min(this.graceMs, options.graceMs ?? this.graceMs)
    if (this.life === 'draining' && options.drainMs !== undefined && options.drainMs <= 0) this.toGrace()
    else if (this.life === 'grace') this.armGrace()
  }

  /** Whether anything was handed over that could still settle by itself. */
  private holding(): boolean {
    for (const claim of this.held) if (claim.state === 'held') return true
    return false
  }

  private releaseInbox(): void {
    const inbox = this.inbox
    this.inbox = []
    for (const claim of inbox.reverse()) {
      if (claim.state !== 'held') continue
      this.fence(claim)
    }
  }

  private fence(claim: HeldClaim): void {
    this.emit({ type: 'released', id: claim.claim.id })
    claim.settleQuietly({ kind: 'release', delivered: claim.delivered })
  }

  private giveBackSeen(claim: HeldClaim): void {
    const command =
      this.life === 'open'
        ? ({ kind: 'requeue', delayMs: 0, countAttempt: true } as const)
        : ({ kind: 'release', delivered: true } as const)
    claim.settleQuietly(command)
  }

  /** Moves on when the last thing that the current step waits for has ended. */
  private settleDown(): void {
    if (this.life === 'open' || this.life === 'closed') return
    if (this.life !== 'closing') {
      if (!this.holding()) this.toClosing()
      return
    }
    if (this.held.size > 0 || this.claimRequest) return
    this.close()
  }

  private close(): void {
    this.life = 'closed'
    this.leases.stop()
    this.hub.leave(this)
    const { released, settledDuringGrace, abandoned } = this.account
    this.closed.resolve({ released, settledDuringGrace, abandoned })
    const notify = () => this.notifyEnd()
    if (this.context.scope) this.context.scope.run(notify)
    else notify()
  }

  private notifyEnd(): void {
    const { ending } = this
    if (ending === 'silent') return
    if (ending === 'complete') this.observer.complete()
    else this.observer.error(ending.error(this.cancelled as CancelledError))
  }

  private drop(claim: HeldClaim): void {
    this.held.delete(claim)
    if (this.life !== 'open') return this.settleDown()
    if (this.held.size === 0 && this.options.until !== undefined && this.intake === 'parked') this.wakeUp()
  }

  /** With nothing left in flight, a source with an end has to look whether this is it. */
  private wakeUp(): void {
    this.hub.waiting.leave(this)
    this.wake()
  }

  private count(as: SettledAs): void {
    const { account } = this
    if (as === 'acked') account.acked += 1
    else if (as === 'requeued') account.requeued += 1
    else if (as === 'dead-lettered') account.deadLettered += 1
    else if (as === 'released') account.released += 1
    if (this.life === 'draining' || this.life === 'grace') {
      if (as !== 'released') account.settledDuringGrace += 1
    }
  }

  /** When the lease that an unanswered claim could have created has certainly lapsed. */
  private lapseMs(request: Request<ClaimReply>): number {
    return Math.max(0, request.lastSentAt + this.options.leaseMs - this.clock.now())
  }
}
