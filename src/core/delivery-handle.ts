/**
 * The delivery that users hold: a claim and a payload.
 */
import { json } from '../codec.js'
import type { Delivery, RequeueOptions, Settlement } from '../delivery.js'
import { CancelledError, MessageCancelledError, PayloadError } from '../errors.js'
import { Eventual } from '../eventual.js'
import { boolean, checkOptions, delay, duration } from '../options.js'
import type { EnqueueOptions, Queue } from '../queue.js'
import { forward } from './forward.js'
import type { Command, HeldClaim } from './held-claim.js'
import { ackIn } from './own-transaction.js'
import { type Decision, decide, describeReason, type Policy } from './policy.js'

const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze({})

export class DeliveryHandle<T> implements Delivery<T> {
  /** @internal */
  readonly held: HeldClaim

  constructor(
    held: HeldClaim,
    readonly payload: T,
  ) {
    this.held = held
  }

  get id(): string {
    return this.held.claim.id
  }
  get attempt(): number {
    return this.held.claim.attempt
  }
  get deliveryCount(): number {
    return this.held.claim.deliveryCount
  }
  get priority(): number {
    return this.held.claim.priority
  }
  get key(): string | undefined {
    return this.held.claim.key
  }
  get headers(): Readonly<Record<string, string>> {
    return this.held.claim.headers ?? NO_HEADERS
  }
  get enqueuedAt(): number {
    return this.held.claim.enqueuedAt
  }
  get leaseExpiresAt(): number {
    return this.held.leaseExpiresAt
  }
  get fence(): number {
    return this.held.claim.fence
  }
  get signal(): AbortSignal {
    return this.held.signal
  }
  get settled(): boolean {
    this.held.expireIfLate()
    return this.held.settled
  }

  ack(result?: unknown): Promise<Settlement> {
    return this.answer(() =>
      this.held.settle(result === undefined ? { kind: 'ack' } : { kind: 'ack', result: encodeResult(result) }),
    )
  }

  ackIn(connection: object, result?: unknown): Settlement {
    return ackIn(this.held, connection, result === undefined ? undefined : encodeResult(result))
  }

  fail(error: unknown): Promise<Settlement> {
    return this.answer(() => this.failNow(error, Number.POSITIVE_INFINITY))
  }

  requeue(options: RequeueOptions = {}): Promise<Settlement> {
    return this.answer(() => {
      checkOptions(options, 'requeue', REQUEUE_RULES)
      return this.held.settle(requeueCommand(options))
    })
  }

  deadLetter(reason: unknown): Promise<Settlement> {
    return this.answer(() => this.held.settle({ kind: 'dead-letter', reason: describeReason(reason) }))
  }

  release(): Promise<Settlement> {
    return this.answer(() => this.held.settle({ kind: 'release', delivered: true }))
  }

  forward<U>(to: Queue<U>, payload: U, options?: EnqueueOptions): Promise<Settlement> {
    return this.answer(() => forward(this.held, to, payload, options))
  }

  extend(ms: number): Promise<'extended' | 'stale' | 'capped'> {
    return this.answer(() => {
      duration(1)(ms, 'extend.ms')
      return this.held.owner.extend(this.held, ms)
    })
  }

  progress(value?: unknown): void {
    const { held } = this
    held.aliveAt = held.owner.clock.now()
    held.stuck = false
    if (value !== undefined) held.progress = encodeResult(value)
    held.owner.progressed(held, value)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.answer(() => {
      if (this.held.state !== 'held') return Eventual.resolved(undefined)
      const command: Command = this.held.reason
        ? { kind: 'release', delivered: true }
        : { kind: 'requeue', delayMs: 0, countAttempt: true }
      return this.held.settle(command).then(nothing)
    })
  }

  /** The same claim with another payload. @internal */
  with<R>(payload: R): DeliveryHandle<R> {
    return new DeliveryHandle(this.held, payload)
  }

  /** @internal */
  addPolicy(policy: Policy): void {
    if (this.held.policies) this.held.policies.push(policy)
    else this.held.policies = [policy]
  }

  /** What the policies say of a failure. `run` is how often the handler ran under this claim. @internal */
  decide(error: unknown, run: number): Decision | 'release' {
    if (this.endedByAbort(error)) return 'release'
    return decide(this.held.policies, error, this as Delivery<unknown>, run, this.held.owner.clock.random())
  }

  /** Settles a failure. @internal */
  failNow(error: unknown, run: number): Eventual<Settlement> {
    return this.carryOut(this.decide(error, run), error)
  }

  /** @internal */
  carryOut(decision: Decision | 'release', error: unknown): Eventual<Settlement> {
    const reason = describeReason(error)
    if (decision === 'release') return this.held.settle({ kind: 'release', delivered: true })
    if (decision.kind === 'requeue')
      return this.held.settle({ kind: 'requeue', delayMs: decision.delayMs, countAttempt: true, reason })
    if (decision.kind === 'again') throw new TypeError('a handler that is over cannot be run again')
    if (decision.to) return forward(this.held, decision.to as Queue<unknown>, this.payload, undefined, reason)
    return this.held.settle({ kind: 'dead-letter', reason })
  }

  /** A handler that ends because its signal aborted has not failed. */
  private endedByAbort(error: unknown): boolean {
    const reason = this.held.reason
    if (!(reason instanceof CancelledError || reason instanceof MessageCancelledError)) return false
    if (error === reason || typeof error !== 'object' || error === null) return error === reason
    const { name, cause } = error as { name?: unknown; cause?: unknown }
    return name === 'AbortError' || cause === reason
  }

  private answer<R>(work: () => Eventual<R>): Promise<R> {
    let eventual: Eventual<R>
    try {
      eventual = work()
    } catch (error) {
      eventual = Eventual.rejected(error)
    }
    return this.held.owner.clock.promise(eventual)
  }
}

/** Settles without anybody to tell: what goes wrong is an event of the source, and the claim then lapses. */
export function settleQuietly(delivery: DeliveryHandle<unknown>, command: Command): void {
  delivery.held.settle(command).catch((error) => giveUp(delivery, error))
}

/** Fails by the policies so far, without anybody to tell. */
export function failQuietly(delivery: DeliveryHandle<unknown>, failure: unknown): void {
  delivery.failNow(failure, Number.POSITIVE_INFINITY).catch((error) => giveUp(delivery, error))
}

function giveUp({ held }: DeliveryHandle<unknown>, error: unknown): void {
  if (held.state === 'held') held.giveUp(error)
  else held.owner.emit({ type: 'error', error })
}

const REQUEUE_RULES = { delayMs: delay, reason: anything, countAttempt: boolean }

function requeueCommand({ delayMs = 0, reason, countAttempt = true }: RequeueOptions): Command {
  return {
    kind: 'requeue',
    delayMs: Math.max(0, delayMs),
    countAttempt,
    ...(reason !== undefined && { reason: describeReason(reason) }),
  }
}

function encodeResult(result: unknown): Uint8Array {
  try {
    return json().encode(result)
  } catch (error) {
    if (!(error instanceof PayloadError)) throw error
    throw new PayloadError(
      error.field.replace(/^payload/, 'result'),
      error.value,
      error.message.slice(error.field.length + 1),
      { cause: error },
    )
  }
}

function anything(): void {}
function nothing(): void {}
