/**
 * How a consumer comes to its end.
 *
 *     open ──stop──▶ draining ──drainMs──▶ grace ──graceMs──▶ closing ──all answers in──▶ closed
 *
 * - `draining`: intake has stopped, handlers go on undisturbed; what was claimed but not handed over is released.
 * - `grace`: the signals of what is still held have aborted; its settlements count, its leases are renewed.
 * - `closing`: what was still held is released and fenced; only answers of the store are awaited, each within a bound.
 *
 * Each step is skipped when nothing is held, so that stopping an idle consumer is done before `stop` returns.
 */
import type { CancelledError } from '../errors.js'
import type { Clock, Timer } from './clock.js'
import type { HeldClaim } from './held-claim.js'
import type { Roster } from './roster.js'

export type Life = 'open' | 'draining' | 'grace' | 'closing' | 'closed'

/** How long the steps may take. */
export interface StepBounds {
  readonly drainMs?: number | undefined
  readonly graceMs?: number | undefined
}

/** What is being stopped. */
export interface Stoppable {
  readonly clock: Clock
  readonly held: Roster<HeldClaim>
  /** Whether a claim request is still to be answered. */
  readonly claiming: boolean
  /** Gives back what was claimed and not handed over. */
  releaseUnseen(): void
  /** Gives a claim back, whatever its handler still does. */
  release(claim: HeldClaim): void
  onClosed(): void
}

export class Stopping {
  life: Life = 'open'
  /** How long settlements count after the signals have aborted. */
  graceMs = 0
  private reason: CancelledError | undefined
  private timer: Timer | undefined
  /** When the current step ends. */
  private endsAt = Number.POSITIVE_INFINITY

  constructor(private readonly subject: Stoppable) {}

  /** Whether a settlement now is one that came after the cancel. */
  get late(): boolean {
    return this.life === 'draining' || this.life === 'grace'
  }

  /** Begins with what nobody has seen: that goes back at once. */
  begin(reason: CancelledError, drainMs: number, graceMs: number): void {
    this.life = 'draining'
    this.reason = reason
    this.graceMs = graceMs
    this.subject.releaseUnseen()
    this.stepFor(drainMs, () => this.toGrace())
  }

  /** Smaller bounds replace larger ones; never the other way round. */
  hasten({ drainMs, graceMs }: StepBounds): void {
    this.graceMs = Math.min(this.graceMs, graceMs ?? this.graceMs)
    if (this.life === 'draining' && drainMs !== undefined) this.stepFor(drainMs, () => this.toGrace())
    else if (this.life === 'grace' && graceMs !== undefined) this.stepFor(graceMs, () => this.toClosing())
  }

  /** Moves on when the last thing that the current step waits for has ended. */
  settleDown(): void {
    if (this.life === 'closing') this.closeIfDone()
    else if (this.late && !this.holding()) this.toClosing()
  }

  private toGrace(): void {
    this.life = 'grace'
    this.endsAt = Number.POSITIVE_INFINITY
    for (const claim of [...this.subject.held]) {
      if (claim.state === 'held') claim.abort(this.reason as CancelledError)
    }
    // A handler may have settled, synchronously, when its signal aborted; the step may be over by now.
    if (this.life === 'grace') this.stepFor(this.graceMs, () => this.toClosing())
  }

  private toClosing(): void {
    this.timer?.stop()
    this.life = 'closing'
    for (const claim of [...this.subject.held].reverse()) {
      if (claim.state !== 'held') continue
      claim.abort(this.reason as CancelledError)
      this.subject.release(claim)
    }
    this.closeIfDone()
  }

  private closeIfDone(): void {
    if (this.life !== 'closing' || this.subject.held.size > 0 || this.subject.claiming) return
    this.life = 'closed'
    this.subject.onClosed()
  }

  /** Ends the step after `ms`, at once when there is nothing to wait for, or when it would have ended before. */
  private stepFor(ms: number, next: () => void): void {
    if (!this.holding()) return this.toClosing()
    const endsAt = this.subject.clock.now() + ms
    if (endsAt >= this.endsAt) return
    this.timer?.stop()
    this.endsAt = endsAt
    if (ms <= 0) next()
    else this.timer = this.subject.clock.after(ms, next)
  }

  /** Whether anything was handed over that could still settle by itself. */
  private holding(): boolean {
    for (const claim of this.subject.held) if (claim.state === 'held') return true
    return false
  }
}
