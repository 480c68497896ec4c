/**
 * Drives a flow to its end for a sink, and accounts for every consumer behind it.
 */
import { CancelledError } from '../errors.js'
import type { Summary } from '../events.js'
import { Eventual } from '../eventual.js'
import type { BaseFlow } from './base-flow.js'
import { type DemandObserver, type DemandSubscription, demand } from './demand.js'
import { deliveriesOf } from './parcel.js'
import { Scope } from './scope.js'
import { onAbort } from './signals.js'

/** What every sink can be told. */
export interface SinkOptions {
  /** Stops the flow, in three steps: intake ends, handlers go on for `drainMs`, then have `graceMs` after the abort. */
  readonly signal?: AbortSignal
  /** Default: the sources' own. */
  readonly drainMs?: number
  /** Default: the sources' own. */
  readonly graceMs?: number
  /** Skips to the last step: everything that is not settled is released and fenced. */
  readonly killSignal?: AbortSignal
}

export interface RunnerOptions extends SinkOptions {
  readonly until?: 'empty' | 'idle'
}

/** Works on one value; the next is asked for when it is done. */
export type Each<T> = (value: T, index: number) => unknown

export class Runner<T> implements DemandObserver<T> {
  /** Fulfils when the flow has ended and every claim behind it is accounted for. */
  readonly result = new Eventual<Summary>()
  private readonly scope: Scope
  private readonly releases: (() => void)[] = []
  private subscription: DemandSubscription | undefined
  private index = 0
  private ended = false

  constructor(
    flow: BaseFlow<T>,
    readonly options: RunnerOptions,
    private readonly each?: Each<T>,
  ) {
    const { drainMs, graceMs, until, signal, killSignal } = options
    this.scope = new Scope({
      ...(drainMs !== undefined && { drainMs }),
      ...(graceMs !== undefined && { graceMs }),
      ...(until !== undefined && { until }),
    })
    if (signal?.aborted || killSignal?.aborted) {
      this.finish()
      return
    }
    this.scope.run(() => {
      this.subscription = flow[demand](this)
      this.ask()
    })
    this.listen(signal, () => this.stop(signal))
    this.listen(killSignal, () => this.kill(killSignal))
  }

  next(value: T): void {
    if (!this.each || this.ended) return
    for (const delivery of deliveriesOf(value)) delivery.held.inLoop = true
    let done: Eventual<unknown>
    try {
      done = Eventual.from(this.each(value, this.index))
    } catch (error) {
      done = Eventual.rejected(error)
    }
    this.index += 1
    done.then(
      () => this.ask(),
      (error) => this.fail(error),
    )
  }

  error(error: unknown): void {
    // A source that was cancelled by its own signal: the account says so, as it does for the sink's.
    if (error instanceof CancelledError) this.finish()
    else this.finish({ error })
  }

  complete(): void {
    this.finish()
  }

  private ask(): void {
    if (!this.ended) this.subscription?.request(this.each ? 1 : Number.POSITIVE_INFINITY)
  }

  private listen(signal: AbortSignal | undefined, work: () => void): void {
    if (!this.ended) this.releases.push(onAbort(signal, work))
  }

  private stop(signal: AbortSignal | undefined): void {
    this.scope.stop({ reason: signal?.reason, ending: 'complete' })
    this.cancelWhenClosed()
  }

  private kill(signal: AbortSignal | undefined): void {
    this.scope.stop({ drainMs: 0, graceMs: 0, reason: signal?.reason, ending: 'complete' })
    this.cancelWhenClosed()
  }

  /** What has no consumer, or goes on without one, ends here. */
  private cancelWhenClosed(): void {
    this.scope.closed().then(() => this.cancel())
  }

  private cancel(): void {
    if (this.ended) return
    this.subscription?.cancel()
    this.finish()
  }

  /** The sink's own function threw: as leaving a loop by a throw. */
  private fail(error: unknown): void {
    if (this.ended) return
    this.scope.leaveLoop()
    this.subscription?.cancel()
    this.finish({ error })
  }

  private finish(failure?: { readonly error: unknown }): void {
    if (this.ended) return
    this.ended = true
    this.scope.closed().then(() => {
      for (const release of this.releases.splice(0)) release()
      if (failure) this.result.reject(failure.error)
      else this.result.resolve(this.scope.summary())
    })
  }
}
