/**
 * A claim request of a consumer, over and over: one on its way at a time, never abandoned.
 */
import type { ClaimReply, ClaimRequest, RequestToken } from '../driver.js'
import type { Hub } from './hub.js'
import { ask, type Request } from './request.js'
import { SETTLE_BOUND_MS } from './settler.js'

/** What a consumer asks for in each of its claims. */
export interface ClaimTerms {
  /** At most once: acked as it is handed over. */
  readonly take: boolean
  readonly group: string | undefined
  readonly partition: string | undefined
  readonly leaseMs: number
  readonly label: string
}

/** A claim request as it was sent. */
export interface SentClaim {
  readonly size: number
  readonly at: number
  /** Which hint was the last then: a later one may tell of what this claim missed. */
  readonly epoch: number
  /** Another one was sent in the same turn. */
  readonly apart: boolean
}

const NONE: SentClaim = { size: 0, at: 0, epoch: 0, apart: false }

/** Told once how a claim request ended. */
export interface ClaimListener {
  onGranted(reply: ClaimReply, sent: SentClaim): void
  onClaimFailed(error: unknown, sent: SentClaim): void
}

export class ClaimCall {
  /** Sent and not answered; true from before the driver sees it, since it may call back. */
  pending = false
  private request: Request<ClaimReply> | undefined
  private graceMs: number | undefined
  /** Aborts when nobody wants an answer any more; one for all claims, since the first that is unwanted is the last. */
  private readonly unwanted = new AbortController()
  /** What was hinted to be cancelled while the answer was on its way: a hint can overtake it. */
  private cancelled: Set<string> | undefined
  private sent = NONE

  constructor(
    private readonly hub: Hub,
    private readonly terms: ClaimTerms,
    private readonly listener: ClaimListener,
  ) {}

  /** What it asks for that is not answered. */
  get asked(): number {
    return this.pending ? this.sent.size : 0
  }

  send(size: number, apart: boolean): void {
    this.sent = { size, at: this.hub.clock.now(), epoch: this.hub.epoch, apart }
    this.pending = true
    ask(this.hub, this.claim, undefined, this.goesOn).listen(this.granted, this.failed)
  }

  /**
   * Its consumer stops, with this much grace: from now on the answer is waited for until the lease that it could have
   * created has certainly lapsed, or the cancel has to come to its end.
   */
  limit(graceMs: number): void {
    this.graceMs = graceMs
    this.unwanted.abort()
    if (!this.request) return
    const lapsesInMs = this.request.lastSentAt + this.terms.leaseMs - this.hub.clock.now()
    this.request.limit(Math.min(Math.max(0, lapsesInMs), graceMs + SETTLE_BOUND_MS))
  }

  onCancelHint(id: string): void {
    if (!this.pending) return
    this.cancelled ??= new Set()
    this.cancelled.add(id)
  }

  private readonly claim = (token: RequestToken) => this.hub.driver.claim(this.claimOf(token, this.sent))

  private readonly goesOn = (request: Request<ClaimReply>): void => {
    this.request = request
    // The driver may have called back, and what it did may have stopped the consumer.
    if (this.graceMs !== undefined) this.limit(this.graceMs)
  }

  private readonly granted = (reply: ClaimReply): void => {
    const { sent, cancelled } = this
    this.end()
    this.listener.onGranted(cancelled === undefined ? reply : withCancels(reply, cancelled), sent)
  }

  private readonly failed = (error: unknown): void => {
    const { sent } = this
    this.end()
    this.listener.onClaimFailed(error, sent)
  }

  private end(): void {
    this.pending = false
    this.request = undefined
    this.cancelled = undefined
  }

  private claimOf(token: RequestToken, { size: max, apart }: SentClaim): ClaimRequest {
    const { take, leaseMs, label: consumer, group, partition } = this.terms
    const { signal } = this.unwanted
    if (group === undefined && partition === undefined) return { token, max, leaseMs, take, consumer, signal, apart }
    return {
      signal,
      token,
      max,
      leaseMs,
      take,
      consumer,
      apart,
      ...(group !== undefined && { group }),
      ...(partition !== undefined && { partition }),
    }
  }
}

function withCancels(reply: ClaimReply, cancelled: ReadonlySet<string>): ClaimReply {
  const claims = reply.claims.map((claim) => (cancelled.has(claim.id) ? { ...claim, cancelRequested: true } : claim))
  return { ...reply, claims }
}
