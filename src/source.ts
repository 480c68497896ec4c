/**
 * A source of deliveries.
 */
import type { Observable } from 'rxjs'
import type { Delivery } from './delivery.js'
import type { Released, SourceEvent } from './events.js'
import type { Flow } from './flow.js'

/** How long each of the steps of a stop may take. */
export interface StopBounds {
  /** How long handlers go on undisturbed. Default: the source's. */
  readonly drainMs?: number
  /** How long settlements still count after the signals have aborted. Default: the source's. */
  readonly graceMs?: number
}

/** The deliveries of a queue, as an Observable and as an AsyncIterable. */
export interface QueueSource<T> extends Flow<Delivery<T>>, AsyncDisposable {
  /** What happens inside, for logs and metrics. */
  readonly events: Observable<SourceEvent>
  /**
   * Ends every consumer of this source; both faces complete. Fulfils, never rejects, when all that they ever claimed
   * is settled or back in the store, also for consumers that were unsubscribed before. A stopped source stays stopped.
   */
  stop(bounds?: StopBounds): Promise<Released>
}
