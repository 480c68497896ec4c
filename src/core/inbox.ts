/**
 * What was claimed and not handed over yet: decoded one by one, in order, while somebody wants it.
 */
import { DecodeError } from '../errors.js'
import { Eventual } from '../eventual.js'
import type { HeldClaim } from './held-claim.js'
import { describeReason } from './policy.js'

/** Where an inbox delivers. */
export interface InboxOwner<T> {
  /** Whether another delivery may be handed over now. */
  readonly wants: boolean
  decode(bytes: Uint8Array): T | Eventual<T>
  handOver(claim: HeldClaim, payload: T): void
  onPoison(claim: HeldClaim, error: DecodeError): void
  /** Gives back what was not handed over. */
  release(claim: HeldClaim): void
  /** A decoding that took its time is over: deliver what is left, or ask for more. */
  onDecoded(): void
}

export class Inbox<T> {
  private claims: HeldClaim[] = []
  private decoding = false

  constructor(private readonly owner: InboxOwner<T>) {}

  get size(): number {
    return this.claims.length
  }

  add(claim: HeldClaim): void {
    this.claims.push(claim)
  }

  /** Hands over as much as is wanted. */
  deliver(): void {
    while (this.claims.length > 0 && !this.decoding && this.owner.wants) {
      const claim = this.claims[0] as HeldClaim
      if (claim.state === 'held' && !claim.late) this.decode(claim)
      else this.skip(claim)
    }
  }

  /** Takes out all that is left, newest first: what a cancel has to give back. */
  empty(): HeldClaim[] {
    const left = this.claims.filter(({ state }) => state === 'held').reverse()
    this.claims = []
    return left
  }

  /** Lost while it waited here, or granted so late that its lease may have run out: nobody was shown it. */
  private skip(claim: HeldClaim): void {
    this.claims.shift()
    if (claim.state === 'held') this.owner.release(claim)
  }

  private decode(claim: HeldClaim): void {
    let payload: T | Eventual<T>
    try {
      payload = this.owner.decode(claim.claim.bytes)
    } catch (error) {
      return this.poisoned(claim, error)
    }
    if (!(payload instanceof Eventual)) return this.handOver(claim, payload)
    this.decoding = true
    payload.listen(
      (value) => this.decoded(claim, () => this.handOver(claim, value)),
      (error) => this.decoded(claim, () => this.poisoned(claim, error)),
    )
  }

  /** Meanwhile a cancel may have emptied the inbox. */
  private decoded(claim: HeldClaim, work: () => void): void {
    this.decoding = false
    if (this.claims[0] === claim) work()
    this.owner.onDecoded()
  }

  private handOver(claim: HeldClaim, payload: T): void {
    this.claims.shift()
    if (claim.state === 'held') this.owner.handOver(claim, payload)
  }

  private poisoned(claim: HeldClaim, cause: unknown): void {
    this.claims.shift()
    this.owner.onPoison(
      claim,
      new DecodeError(`message ${claim.claim.id} cannot be decoded: ${describeReason(cause)}`, { cause }),
    )
  }
}
