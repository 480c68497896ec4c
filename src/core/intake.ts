/**
 * The claim loop of a consumer: asks the store for as much as is wanted, and hands over what comes.
 *
 *     idle ──demand──▶ claiming ──granted──▶ idle          (again at once while demand is left)
 *                         │
 *                         └──fewer than asked──▶ parked ──hint, due timer, slow poll──▶ claiming
 *
 * While a store that is pipelined has plenty, two claims are on their way, each for one half of what is wanted: one half
 * is handled while the other is fetched.
 *
 * A claim request is never abandoned: whatever a late answer grants is released, newest first.
 */
import type { Claim, ClaimReply } from '../driver.js'
import { BackendUnavailableError, type DecodeError, TokenExpiredError } from '../errors.js'
import type { SourceEvent } from '../events.js'
import type { Eventual } from '../eventual.js'
import { ClaimCall, type ClaimListener, type ClaimTerms, type SentClaim } from './claim-call.js'
import type { Timer } from './clock.js'
import type { HeldClaim } from './held-claim.js'
import type { Hub, HubMember } from './hub.js'
import { Inbox, type InboxOwner } from './inbox.js'
import { ends, type Until } from './until.js'

/** The most claims of one request. */
const LARGEST_CLAIM = 1_000
/** A request costs about as much as handling some messages: for fewer it is not worth a second one. */
const SMALLEST_SECOND = 4
/** How often a source that ends when all is idle looks whether it is. */
const LOOK_AGAIN_MS = 200

export interface IntakeOptions extends ClaimTerms {
  readonly until: Until | undefined
}

/** The consumer, as its intake sees it. */
export interface IntakeOwner<T> extends HubMember {
  readonly hub: Hub
  /** Whether it still takes in messages. */
  readonly open: boolean
  /** Whether nothing that it claimed is left. */
  readonly quiet: boolean
  decode(bytes: Uint8Array): T | Eventual<T>
  hold(claim: Claim, sentAt: number): HeldClaim
  handOver(claim: HeldClaim, payload: T): void
  onPoison(claim: HeldClaim, error: DecodeError): void
  /** Gives back what was not handed over. */
  release(claim: HeldClaim): void
  emit(event: SourceEvent): void
  /** A source with an end has come to it. */
  finish(): void
  /** The store refused: the stream fails. */
  break(error: unknown): void
  /** The last claim request is over though the consumer is not open; so many claims may be left behind by it. */
  onLastClaim(abandoned: number): void
}

export class Intake<T> implements ClaimListener, InboxOwner<T> {
  state: 'idle' | 'claiming' | 'parked' = 'idle'
  /** How many deliveries are asked for and not handed over. */
  demand = 0
  /** Its last claim was given up before the store looked: nobody knows whether anything was ready. */
  withdrawn = false
  /** What will be asked for when the settlements that are on their way are confirmed. */
  private foreseen = 0
  private readonly inbox = new Inbox<T>(this)
  /** Its claim requests, each on its way or not. */
  private readonly calls: readonly ClaimCall[]
  private readonly hub: Hub
  /** The last claim got all that it asked for. */
  private plenty = false
  private woken = false
  private lookAgain: Timer | undefined

  constructor(
    private readonly owner: IntakeOwner<T>,
    private readonly options: IntakeOptions,
  ) {
    this.hub = owner.hub
    const { pipelined = false } = this.hub.backend.features
    this.calls = Array.from({ length: pipelined ? 2 : 1 }, () => new ClaimCall(this.hub, options, this))
  }

  /** Claims that wait to be handed over. */
  get size(): number {
    return this.inbox.size
  }

  /** Whether a claim request is on its way. */
  get claiming(): boolean {
    return this.calls.some(({ pending }) => pending)
  }

  request(n: number): void {
    this.demand += n
    this.foreseen = Math.max(0, this.foreseen - n)
    if (this.mayAsk && this.inbox.size === 0) this.soon()
    else this.deliver()
  }

  foresee(n: number): void {
    if (!this.hub.backend.features.ordered) return
    this.foreseen += n
    this.soon()
  }

  pump(): void {
    if (!this.owner.open || this.wanted === 0 || this.inbox.size > 0) return
    if (this.state === 'claiming') this.claimSecond(false)
    if (this.state !== 'idle') return
    this.state = 'claiming'
    const ready = this.hub.ready()
    if (ready.fulfilled) return this.claim()
    ready.listen(
      () => this.claim(),
      (error) => this.onNotReady(error),
    )
  }

  /** A store that cannot be reached yet is waited for, as later on. */
  private onNotReady(error: unknown): void {
    if (!(error instanceof BackendUnavailableError)) return this.break(error)
    this.state = 'idle'
    if (this.owner.open) this.soon()
  }

  wake(): void {
    if (this.state !== 'parked') return
    this.lookAgain?.stop()
    this.woken = true
    this.state = 'idle'
    this.soon()
  }

  /** The consumer holds nothing any more: a source with an end has to look whether this is it. */
  onQuiet(): void {
    if (this.options.until !== undefined && this.state === 'parked') this.wakeUp()
  }

  /** Wants nothing more. */
  close(): void {
    this.demand = 0
    this.foreseen = 0
    this.hub.waiting.leave(this.owner)
    this.lookAgain?.stop()
    this.passOnWake()
  }

  /** How long a claim that is on its way is waited for after the consumer has been stopped. */
  limit(graceMs: number): void {
    for (const call of this.calls) call.limit(graceMs)
  }

  /** Gives back what was not handed over, newest first. */
  releaseUnseen(): void {
    for (const claim of this.inbox.empty()) this.owner.release(claim)
  }

  // --- claiming

  private get wanted(): number {
    return this.demand + this.foreseen
  }

  /** Whether a claim may be sent, perhaps as a second one. */
  private get mayAsk(): boolean {
    return this.state === 'idle' || (this.state === 'claiming' && this.plenty && this.calls.length > 1)
  }

  private soon(): void {
    this.hub.soon(this.owner)
  }

  private claim(): void {
    if (!this.owner.open || this.wanted === 0) {
      this.state = 'idle'
      return this.passOnWake()
    }
    this.woken = false
    this.calls[0]?.send(this.nextSize(), false)
    this.claimSecond(true)
  }

  /** Besides one that is on its way, `apart` from it if that goes in the same turn. */
  private claimSecond(apart: boolean): void {
    if (!this.owner.open || !this.mayAsk || this.inbox.size > 0) return
    const size = this.nextSize()
    if (this.claiming && size >= SMALLEST_SECOND) this.calls.find(({ pending }) => !pending)?.send(size, apart)
  }

  /** What is wanted and not asked for; one half of it where the other is to follow. */
  private nextSize(): number {
    const size = this.wanted - this.calls.reduce((sum, { asked }) => sum + asked, 0)
    const isHalved = this.plenty && this.calls.length > 1 && this.wanted >= 2 * SMALLEST_SECOND
    return Math.min(size, isHalved ? Math.ceil(this.wanted / 2) : size, LARGEST_CLAIM)
  }

  /** A message was cancelled, perhaps one that was granted a moment before and is on its way here. */
  onCancelHint(id: string): void {
    for (const call of this.calls) call.onCancelHint(id)
  }

  onGranted(reply: ClaimReply, sent: SentClaim): void {
    const { owner, hub } = this
    this.onAnswered()
    if (reply.withdrawn) this.withdrawn = true
    for (const claim of reply.claims) this.inbox.add(owner.hold(claim, sent.at))
    if (!owner.open) {
      this.releaseUnseen()
      // It was full: there is more for somebody else, whom nothing else may tell.
      if (reply.claims.length >= sent.size) hub.waiting.wakeNext(owner.kind)
      return owner.onLastClaim(0)
    }
    if (reply.claims.length > 0) owner.emit({ type: 'claimed', count: reply.claims.length })
    hub.dueIn(reply.nextDueMs)
    const full = reply.claims.length >= sent.size
    this.plenty = full
    if (full) hub.waiting.wakeNext(owner.kind)
    this.deliver()
    if (!owner.open || this.state !== 'idle') return
    if (full || hub.epoch !== sent.epoch) this.goOn()
    else this.foundEmpty(reply)
  }

  onClaimFailed(error: unknown, sent: SentClaim): void {
    this.onAnswered()
    // It was asked for longer than answers are kept: what it granted, if anything, lapses by itself.
    if (this.owner.open && error instanceof TokenExpiredError) return this.soon()
    if (this.owner.open) return this.break(error)
    // No answer within the bound: whatever it granted lapses by itself, and what is left is for somebody else.
    this.hub.waiting.wakeNext(this.owner.kind)
    this.owner.onLastClaim(sent.size)
  }

  private onAnswered(): void {
    if (this.state === 'claiming' && !this.claiming) this.state = 'idle'
  }

  private goOn(): void {
    if (this.demand > 0) this.soon()
  }

  /** The queue had less than we asked for. */
  private foundEmpty(reply: ClaimReply): void {
    const { until } = this.options
    // The store stopped before all that is due was done: there may be more.
    if (reply.nextDueMs === 0) return this.soon()
    if (until === 'try') return this.owner.finish()
    this.state = 'parked'
    this.hub.waiting.enter(this.owner)
    if (until === undefined) return
    ends(until, reply, this.hub, () => this.owner.quiet && this.state === 'parked').listen(
      (end) => this.looked(end),
      (error) => this.break(error),
    )
  }

  /** Whether this is the end was looked up. What others still hold or delay gives no hint when it ends, so look again. */
  private looked(end: boolean): void {
    if (!this.owner.open || this.state !== 'parked' || !this.owner.quiet) return
    this.lookAgain?.stop()
    if (end) this.owner.finish()
    else this.lookAgain = this.hub.clock.after(LOOK_AGAIN_MS, () => this.wakeUp())
  }

  private wakeUp(): void {
    this.hub.waiting.leave(this.owner)
    this.wake()
  }

  private break(error: unknown): void {
    if (this.state === 'claiming') this.state = 'idle'
    this.owner.break(error)
  }

  /** Somebody else has to take the hint that this one was woken by and has no use for. */
  private passOnWake(): void {
    if (!this.woken) return
    this.woken = false
    this.hub.waiting.wakeNext(this.owner.kind)
  }

  // --- hand-over

  get wants(): boolean {
    return this.demand > 0 && this.owner.open
  }

  decode(bytes: Uint8Array): T | Eventual<T> {
    return this.owner.decode(bytes)
  }

  handOver(claim: HeldClaim, payload: T): void {
    this.demand -= 1
    this.owner.handOver(claim, payload)
  }

  onPoison(claim: HeldClaim, error: DecodeError): void {
    this.owner.onPoison(claim, error)
  }

  release(claim: HeldClaim): void {
    this.owner.release(claim)
  }

  onDecoded(): void {
    this.deliver()
  }

  private deliver(): void {
    this.inbox.deliver()
    if (this.inbox.size === 0 && this.wants && this.mayAsk) this.soon()
  }
}
