/**
 * One lane's work on one value: runs the handler, perhaps again, and settles what it did not settle itself.
 */
import { json } from '../codec.js'
import { CancelledError } from '../errors.js'
import type { SettledAs } from '../events.js'
import type { DeliveryHandle } from './delivery-handle.js'
import { type HandlerListener, type Interrupt, runHandler } from './handler.js'
import type { ClaimWatcher, Command, HeldClaim } from './held-claim.js'
import type { Lanes } from './lanes.js'
import { deliveriesOf } from './parcel.js'
import { backoffMs, type Decision, describeReason } from './policy.js'
import type { Rostered } from './roster.js'

/** How one delivery ended. */
export interface LaneReport<R> {
  readonly delivery: DeliveryHandle<unknown>
  readonly as: SettledAs
  readonly value: R | undefined
  readonly error: unknown
}

export class Lane<V, R, O> implements HandlerListener<R>, ClaimWatcher, Rostered<Lane<V, R, O>> {
  roster: object | undefined
  before: Lane<V, R, O> | undefined
  after: Lane<V, R, O> | undefined
  private readonly deliveries: readonly DeliveryHandle<unknown>[]
  private interrupt: Interrupt
  private run = 0
  private running = false
  private ended = false
  private result: R | undefined
  private failure: unknown
  private unsettled: number

  constructor(
    private readonly lanes: Lanes<V, R, O>,
    private readonly input: V,
    private readonly index: number,
  ) {
    this.deliveries = deliveriesOf(input)
    this.unsettled = this.deliveries.length
  }

  /** Whether only the handler is left, though everything it worked on has come to its end. */
  get overdue(): boolean {
    return !this.ended && this.deliveries.length > 0 && this.unsettled === 0
  }

  start(): void {
    for (const delivery of this.deliveries) {
      delivery.held.watch(this)
    }
    this.runOnce()
  }

  /** Nobody wants the results. Deliveries are ended by their consumer; a plain value has none, so it ends here. */
  abandonValue(): void {
    if (this.deliveries.length > 0) return
    this.ended = true
    this.interrupt?.()
  }

  value(value: R): void {
    this.result = value
    this.emitValue(value)
  }

  last(value: R): void {
    if (this.ended) return
    this.result = value
    // Settled first: an observer that takes this value and leaves must not undo what was done.
    this.succeed(() => this.emitValue(value))
  }

  done(): void {
    if (this.ended) return
    this.succeed(nothing)
  }

  failed(error: unknown): void {
    this.running = false
    if (this.ended) return
    if (this.deliveries.length === 0) {
      this.ended = true
      return this.lanes.fail(error)
    }
    this.failure = error
    const held = this.deliveries.filter((delivery) => delivery.held.state === 'held')
    const decisions = held.map((delivery) => delivery.decide(error, this.run))
    const again = decisions[0]
    if (again && again !== 'release' && again.kind === 'again' && decisions.every(isAgain))
      return this.runLater(again.delayMs)
    this.ended = true
    held.forEach((delivery, index) => {
      const decision = decisions[index] as Decision | 'release'
      this.settle(delivery, isAgain(decision) ? delivery.decide(error, Number.POSITIVE_INFINITY) : decision, error)
    })
    this.finish()
  }

  private runOnce(): void {
    this.run += 1
    const { run } = this
    this.running = true
    const interrupt = runHandler(this.lanes.handler, this.input, this.index, this)
    // A handler that is over by now may have begun a pause, whose end is what is to be interrupted then.
    if (!this.running || this.run !== run) return
    this.interrupt = interrupt
    this.aborted()
  }

  /** The claim is kept meanwhile; an abort ends the pause, and with it the matter. */
  private runLater(delayMs: number): void {
    const timer = this.lanes.clock.after(delayMs, () => {
      this.interrupt = undefined
      if (this.unsettled > 0) this.runOnce()
      else this.done()
    })
    this.interrupt = () => timer.stop()
    this.aborted()
  }

  /**
   * Ends a handler that can be ended, once nothing it works on is ours to settle as before. At the end of the turn:
   * one that is just about to complete by itself, and has emitted its last value, has done its work.
   */
  private aborted(): void {
    if (
      this.ended ||
      !this.interrupt ||
      !this.deliveries.every(({ held }) => held.reason !== undefined || held.state === 'ended')
    )
      return
    if (this.deliveries.length === 0) return
    const { interrupt } = this
    this.lanes.clock.soon(() => {
      if (this.ended || this.interrupt !== interrupt) return
      interrupt()
      this.ended = true
      for (const delivery of this.deliveries) {
        if (delivery.held.state === 'held') this.settle(delivery, 'release', delivery.held.reason)
      }
      this.freeIfDone()
    })
  }

  private succeed(afterwards: () => void): void {
    this.running = false
    let command: Command
    try {
      command = this.ackCommand()
    } catch (error) {
      return this.failed(error)
    }
    this.ended = true
    this.failure = undefined
    for (const delivery of this.deliveries) {
      if (delivery.held.state === 'held')
        delivery.held.settleQuietly(command, { resolve: nothing, reject: (error) => this.refused(delivery, error) })
    }
    afterwards()
    this.finish()
  }

  private ackCommand(): Command {
    if (!this.lanes.options.storeResult || this.result === undefined) return { kind: 'ack' }
    return { kind: 'ack', result: json().encode(this.result) }
  }

  private settle(delivery: DeliveryHandle<unknown>, decision: Decision | 'release', error: unknown): void {
    try {
      delivery.carryOut(decision, error).catch((refusal) => this.refused(delivery, refusal))
    } catch (refusal) {
      this.refused(delivery, refusal)
    }
  }

  /** The settlement itself was refused (a full target, say): the source keeps the message and it is tried again later. */
  private refused(delivery: DeliveryHandle<unknown>, error: unknown): void {
    const { held } = delivery
    held.owner.emit({ type: 'error', error })
    if (held.state === 'held')
      held.settleQuietly(this.afterRefusal(delivery, error), {
        resolve: nothing,
        reject: (again) => held.giveUp(again),
      })
  }

  private afterRefusal(delivery: DeliveryHandle<unknown>, error: unknown): Command {
    if (delivery.held.reason instanceof CancelledError) return { kind: 'release', delivered: true }
    const delayMs = backoffMs({}, delivery.attempt, this.lanes.clock.random())
    return { kind: 'requeue', delayMs, countAttempt: true, reason: describeReason(error) }
  }

  claimAborted(): void {
    this.aborted()
  }

  claimEnded(claim: HeldClaim): void {
    this.unsettled -= 1
    const { onSettled } = this.lanes.options
    if (onSettled)
      this.lanes.emit(
        onSettled({
          delivery: this.deliveryOf(claim),
          as: claim.endedAs ?? 'lost',
          value: this.result,
          error: this.failure,
        }),
      )
    this.freeIfDone()
  }

  private deliveryOf(claim: HeldClaim): DeliveryHandle<unknown> {
    return this.deliveries.find(({ held }) => held === claim) as DeliveryHandle<unknown>
  }

  private emitValue(value: R): void {
    const { onValue } = this.lanes.options
    if (onValue) this.lanes.emit(onValue(value))
  }

  private freeIfDone(): void {
    if (this.ended && this.unsettled === 0) this.lanes.free(this)
  }

  /** The handler is over, and what is left to do is on its way to the store. */
  private finish(): void {
    if (this.unsettled === 0) this.lanes.free(this)
    else this.lanes.willBeFree()
  }
}

function isAgain(decision: Decision | 'release'): boolean {
  return decision !== 'release' && decision.kind === 'again'
}

function nothing(): void {}
