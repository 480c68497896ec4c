/**
 * Keeps the leases of one consumer alive, and notices those that are not.
 *
 * One timer for all claims: it runs a few times per lease while anything is held and rests otherwise. A claim is
 * renewed when a third of its lease has passed since the last confirmed renewal was sent.
 */
import type { RenewResult } from '../driver.js'
import { MessageCancelledError } from '../errors.js'
import type { SourceEvent } from '../events.js'
import { Eventual } from '../eventual.js'
import type { Timer } from './clock.js'
import type { HeldClaim } from './held-claim.js'
import type { Hub } from './hub.js'
import type { Roster } from './roster.js'

export interface LeaseOptions {
  readonly leaseMs: number
  readonly maxLeaseMs: number
}

/** What the keeper needs from its consumer. */
export interface LeaseHolder {
  readonly held: Roster<HeldClaim>
  readonly hub: Hub
  emit(event: SourceEvent): void
  /** Nothing was settled for a whole lease. */
  onStalled(): void
}

export class LeaseKeeper {
  private timer: Timer | undefined
  private renewing = false
  private failing = false
  private toCheck: HeldClaim[] = []
  private settledAt = 0
  private settling = false

  constructor(
    private readonly holder: LeaseHolder,
    private readonly options: LeaseOptions,
  ) {}

  /** A claim was granted. Arms the timer if it rests. */
  start(now: number): void {
    if (this.timer) return
    this.settledAt = now
    this.timer = this.holder.hub.clock.after(this.options.leaseMs / 3, () => this.tick())
  }

  stop(): void {
    this.timer?.stop()
    this.timer = undefined
  }

  /** A settlement was made: the stream is alive. */
  alive(): void {
    this.settling = true
  }

  /** Hints were missed: asks after all claims that are renewed at all. */
  checkAll(): void {
    const now = this.holder.hub.clock.now()
    this.check([...this.holder.held].filter((claim) => now - claim.aliveAt < this.options.maxLeaseMs))
  }

  /** Renews now, out of turn: a hint said that something about these claims changed. */
  check(claims: readonly HeldClaim[]): void {
    // The answer to a renewal that is on its way may be older than what the hint is about.
    if (this.renewing) this.toCheck.push(...claims)
    else this.renew(claims.filter((claim) => claim.state === 'held'))
  }

  /** Renews a claim that was acked in a transaction of the caller's: where that works it was rolled back. */
  confirm(claim: HeldClaim): void {
    if (claim.state !== 'held') return
    this.send([claim]).then(
      ([result]) => result?.state !== 'stale' && claim.rolledBack(),
      (error) => this.holder.emit({ type: 'error', error }),
    )
  }

  /** Asks for a lease of `ms` from now. */
  extend(claim: HeldClaim, ms: number): Eventual<'extended' | 'stale' | 'capped'> {
    const clock = this.holder.hub.clock
    if (claim.state !== 'held' || claim.expireIfLate()) return Eventual.resolved('stale')
    if (clock.now() + ms > claim.aliveAt + this.options.maxLeaseMs) return Eventual.resolved('capped')
    const until = clock.now() + ms
    claim.extendingUntil = until
    return this.send([claim], ms)
      .finally(() => {
        if (claim.extendingUntil === until) claim.extendingUntil = 0
      })
      .then((results) => (results[0]?.state === 'stale' || claim.state === 'ended' ? 'stale' : 'extended'))
  }

  private tick(): void {
    this.timer = undefined
    if (this.holder.held.size === 0) return
    const now = this.holder.hub.clock.now()
    const due: HeldClaim[] = []
    for (const claim of [...this.holder.held]) {
      if (claim.state !== 'held' || claim.expireIfLate() || this.capped(claim, now)) continue
      if (this.renewAt(claim) <= now + 1) due.push(claim)
    }
    this.renew(due)
    this.noteStall(now)
    this.rearm(now)
  }

  /** Told once for each lease in which nothing was settled. */
  private noteStall(now: number): void {
    if (this.settling) this.settledAt = now
    this.settling = false
    if (now - this.settledAt < this.options.leaseMs) return
    this.settledAt = now
    this.holder.onStalled()
  }

  /** Whether `maxLeaseMs` has run out; the claim then lapses by itself, and its handler is told. */
  private capped(claim: HeldClaim, now: number): boolean {
    if (now - claim.aliveAt < this.options.maxLeaseMs) return false
    if (!claim.stuck) {
      claim.stuck = true
      this.holder.emit({ type: 'stuck', id: claim.claim.id })
    }
    return true
  }

  private renew(claims: readonly HeldClaim[]): void {
    if (claims.length === 0 || this.renewing) return
    this.renewing = true
    this.send(claims).then(
      () => {
        this.endRenewal()
        if (this.failing) for (const claim of claims) this.holder.emit({ type: 'lease-restored', id: claim.claim.id })
        this.failing = false
      },
      (error) => {
        // The claims keep their deadlines: the next tick tries again, or finds them lapsed.
        this.endRenewal()
        this.failing = true
        this.holder.emit({ type: 'error', error })
      },
    )
  }

  private endRenewal(): void {
    this.renewing = false
    if (this.toCheck.length > 0) this.check(this.toCheck.splice(0))
  }

  private send(claims: readonly HeldClaim[], leaseMs?: number): Eventual<readonly RenewResult[]> {
    const { hub } = this.holder
    const sentAt = hub.clock.now()
    const renewals = claims.map((held) => ({
      id: held.claim.id,
      token: held.claim.token,
      leaseMs: leaseMs ?? this.leaseMsFor(held),
      ...(held.progress && { progress: held.progress }),
    }))
    return hub
      .request(() => hub.driver.renew(renewals), leaseMs ?? this.options.leaseMs)
      .then((results) => {
        claims.forEach((claim, index) => {
          const result = results[index]
          if (result) this.apply(claim, result, sentAt)
        })
        return results
      })
  }

  /** What was extended for longer, or is about to be, is not cut short. */
  private leaseMsFor(held: HeldClaim): number {
    const until = Math.max(held.leaseUntil, held.extendingUntil)
    return Math.max(this.options.leaseMs, until - this.holder.hub.clock.now())
  }

  private apply(claim: HeldClaim, result: RenewResult, sentAt: number): void {
    // A settlement that overtook the renewal makes its claim stale here; the settlement's own answer counts.
    if (claim.state !== 'held') return
    if (result.state === 'stale') return claim.gone()
    claim.renewed(sentAt, result.leaseMs, result.leaseExpiresAt)
    if (result.state === 'cancelled') claim.abort(new MessageCancelledError(claim.claim.id))
  }

  /** When two thirds of a lease are left; one that was granted or extended for longer is left alone until then. */
  private renewAt(claim: HeldClaim): number {
    return claim.deadline - (2 / 3) * this.options.leaseMs
  }

  /** The next tick: at the nearest renewal or deadline. A renewal that is on its way is looked after in a while. */
  private rearm(now: number): void {
    let at = Number.POSITIVE_INFINITY
    for (const claim of this.holder.held) {
      const renewAt = claim.stuck
        ? Number.POSITIVE_INFINITY
        : Math.max(this.renewAt(claim), now + this.options.leaseMs / 6)
      at = Math.min(at, renewAt, claim.deadline)
    }
    if (at === Number.POSITIVE_INFINITY) return
    this.timer = this.holder.hub.clock.after(Math.max(at - now, 1), () => this.tick())
  }
}
