/**
 * Bounded concurrency: so many lanes, each works on one value at a time.
 *
 * A lane is free again when its handler has ended and every delivery it worked on has been settled and confirmed.
 * Upstream is asked for one value per free lane, and for none while results wait that nobody has asked for.
 */

import type { BaseFlow } from './base-flow.js'
import type { Clock } from './clock.js'
import { type DemandObserver, type DemandSubscription, demand } from './demand.js'
import type { Handler } from './handler.js'
import { Lane, type LaneReport } from './lane.js'
import { Roster } from './roster.js'

export interface LanesOptions<R, O> {
  readonly lanes: number
  readonly storeResult: boolean
  /** What is emitted for a value of a handler. */
  readonly onValue?: (value: R) => O
  /** What is emitted when a delivery has been settled. */
  readonly onSettled?: (report: LaneReport<R>) => O
}

export class Lanes<V, R, O> implements DemandSubscription, DemandObserver<V> {
  readonly clock: Clock
  private readonly upstream: DemandSubscription
  private readonly running = new Roster<Lane<V, R, O>>()
  private readonly results: O[] = []
  private wanted = 0
  /** Lanes that are free and for which nothing has been asked yet. */
  private owed: number
  private index = 0
  private upstreamEnded = false
  private closed = false

  constructor(
    source: BaseFlow<V>,
    readonly handler: Handler<V, R>,
    readonly options: LanesOptions<R, O>,
    private readonly observer: DemandObserver<O>,
  ) {
    this.clock = source.clock
    this.owed = options.lanes
    this.upstream = source[demand](this)
  }

  // --- downstream

  request(n: number): void {
    this.wanted += n
    this.flush()
    this.ask()
  }

  cancel(): void {
    if (this.closed) return
    this.closed = true
    this.results.length = 0
    this.upstream.cancel()
    for (const lane of [...this.running]) lane.abandonValue()
  }

  // --- upstream

  next(value: V): void {
    const lane = new Lane(this, value, this.index)
    this.index += 1
    this.running.add(lane)
    lane.start()
  }

  error(error: unknown): void {
    this.endWith(() => this.observer.error(error))
  }

  complete(): void {
    this.upstreamEnded = true
    this.completeIfDone()
  }

  // --- lanes

  emit(result: O): void {
    if (this.closed) return
    if (this.wanted > 0 && this.results.length === 0) {
      this.wanted -= 1
      this.observer.next(result)
    } else this.results.push(result)
  }

  /** A lane has sent its last settlement. What is emitted when that is confirmed may be all that is wanted for now. */
  willBeFree(): void {
    const certain = this.options.onSettled === undefined || this.wanted === Number.POSITIVE_INFINITY
    if (certain && this.mayAsk) this.upstream.foresee?.(1)
  }

  free(lane: Lane<V, R, O>): void {
    if (!this.running.delete(lane)) return
    this.owed += 1
    if (this.upstreamEnded) this.completeIfDone()
    else this.ask()
  }

  /** A value that is no delivery failed: there is nothing to settle, so the stream fails. */
  fail(error: unknown): void {
    this.endWith(() => {
      this.upstream.cancel()
      for (const lane of [...this.running]) lane.abandonValue()
      this.observer.error(error)
    })
  }

  /** Whether somebody waits for what a lane would do. */
  private get mayAsk(): boolean {
    return !this.closed && !this.upstreamEnded && this.wanted > 0 && this.results.length === 0
  }

  private ask(): void {
    if (this.owed === 0 || !this.mayAsk) return
    const n = this.owed
    this.owed = 0
    this.upstream.request(n)
  }

  private flush(): void {
    while (this.wanted > 0 && this.results.length > 0 && !this.closed) {
      this.wanted -= 1
      this.observer.next(this.results.shift() as O)
    }
    if (this.upstreamEnded) this.completeIfDone()
  }

  /** A handler whose claim has ended without it (fenced after the grace) is not waited for. */
  private completeIfDone(): void {
    if (this.closed || this.results.length > 0) return
    for (const lane of this.running) if (!lane.overdue) return
    this.endWith(() => this.observer.complete())
  }

  private endWith(work: () => void): void {
    if (this.closed) return
    this.closed = true
    work()
  }
}
