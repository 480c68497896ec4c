/**
 * Gathers deliveries by number and by time.
 *
 * One batch wanted is `size` deliveries asked for. What an early batch (by time) left over of that demand counts for
 * the next one.
 */
import type { Delivery } from '../delivery.js'
import type { BaseFlow } from './base-flow.js'
import type { Timer } from './clock.js'
import type { DeliveryHandle } from './delivery-handle.js'
import { type DemandObserver, type DemandSubscription, demand } from './demand.js'

export class Batches<T> implements DemandSubscription, DemandObserver<Delivery<T>> {
  private readonly upstream: DemandSubscription
  private members: DeliveryHandle<T>[] = []
  private wanted = 0
  /** Asked for and not arrived. */
  private outstanding = 0
  /** The observer cannot ask: one batch at a time. */
  private unlimited = false
  private timer: Timer | undefined
  private closed = false

  constructor(
    private readonly source: BaseFlow<Delivery<T>>,
    private readonly options: { readonly size: number; readonly withinMs: number },
    private readonly observer: DemandObserver<Delivery<T>[]>,
  ) {
    this.upstream = source[demand](this)
  }

  request(n: number): void {
    if (this.closed) return
    if (n === Number.POSITIVE_INFINITY) {
      if (this.unlimited) return
      this.unlimited = true
      this.wanted = 1
    } else this.wanted += n
    this.ask()
  }

  foresee(n: number): void {
    const missing = this.options.size * n - this.members.length - this.outstanding
    if (!this.closed && missing > 0) this.upstream.foresee?.(missing)
  }

  cancel(): void {
    if (this.closed) return
    this.close()
    this.giveBack(this.members.splice(0))
    this.upstream.cancel()
  }

  next(delivery: Delivery<T>): void {
    const member = delivery as DeliveryHandle<T>
    this.outstanding -= 1
    this.members.push(member)
    member.held.watch({ claimAborted: () => this.aborted(member), claimEnded: nothing })
    if (this.members.length >= this.options.size) this.emit()
    else this.timer ??= this.source.clock.after(this.options.withinMs, () => this.emit())
  }

  error(error: unknown): void {
    this.close()
    this.observer.error(error)
  }

  complete(): void {
    if (this.members.length > 0) this.emit()
    this.close()
    this.observer.complete()
  }

  private emit(): void {
    this.timer?.stop()
    this.timer = undefined
    const members = this.members.filter(({ held }) => !held.expireIfLate() && held.state === 'held')
    this.members = []
    if (members.length === 0) return this.ask()
    this.wanted -= 1
    if (this.unlimited) this.renewWhenSettled(members)
    this.observer.next(members)
    this.ask()
  }

  private ask(): void {
    const missing = this.options.size * this.wanted - this.members.length - this.outstanding
    if (this.closed || missing <= 0) return
    this.outstanding += missing
    this.upstream.request(missing)
  }

  private renewWhenSettled(members: readonly DeliveryHandle<T>[]): void {
    let left = members.length
    for (const { held } of members) {
      held.watch({
        claimAborted: nothing,
        claimEnded: () => {
          left -= 1
          if (left > 0) return
          this.wanted += 1
          this.ask()
        },
      })
    }
  }

  /** Nobody has seen it, and its consumer is being cancelled. */
  private aborted(member: DeliveryHandle<T>): void {
    const index = this.members.indexOf(member)
    if (index >= 0) this.giveBack(this.members.splice(index, 1))
  }

  private giveBack(members: readonly DeliveryHandle<T>[]): void {
    for (const { held } of [...members].reverse()) held.takeBack({ kind: 'release', delivered: false })
  }

  private close(): void {
    this.closed = true
    this.timer?.stop()
  }
}

function nothing(): void {}
