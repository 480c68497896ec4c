/**
 * What a consumer holds: one message under one claim.
 */
import type { EnqueueOptions, Queue } from './queue.js'

/**
 * How a settlement ended.
 *
 * - `'settled'`: the store has applied it.
 * - `'already-settled'`: this delivery was settled before; nothing was sent.
 * - `'stale'`: the claim is not this delivery's any more (lapsed, released, purged); nothing was changed.
 */
export type Settlement = 'settled' | 'already-settled' | 'stale'

/** How {@link Delivery.requeue} gives a message back. */
export interface RequeueOptions {
  /** Milliseconds until it is ready again. Default 0: at once, in its old place. Zero or less is now. */
  readonly delayMs?: number
  /** Kept with the message, shown in its dead letter. */
  readonly reason?: unknown
  /** Whether the attempt that ends here counts towards `maxDeliveries`. Default true. */
  readonly countAttempt?: boolean
}

/**
 * A message that was handed over, and the claim on it.
 *
 * The claim is kept alive in the background until the delivery is settled, its consumer is cancelled, or
 * `maxLeaseMs` has run out. Settling never throws for a claim that is gone: it answers. It rejects with
 * `SettlementUnknownError` when the store did not confirm within 5 s, and with the store's own error when that refused.
 */
export interface Delivery<T> extends AsyncDisposable {
  readonly id: string
  readonly payload: T
  /** From 1; rises on failure and on a lapsed lease only. */
  readonly attempt: number
  /** From 1; rises on each hand-over. */
  readonly deliveryCount: number
  readonly priority: number
  readonly key: string | undefined
  readonly headers: Readonly<Record<string, string>>
  /** Epoch milliseconds. */
  readonly enqueuedAt: number
  /** Epoch milliseconds by the store's clock, as last confirmed. */
  readonly leaseExpiresAt: number
  /** Rises with each claim of the queue: let the effect's own store refuse a lower one. */
  readonly fence: number
  /**
   * Aborts when the consumer is cancelled (`CancelledError`), the lease is lost (`LeaseLostError`), the handler timed
   * out (`HandlerTimeoutError`) or the message was cancelled (`MessageCancelledError`); its `reason` is that error.
   */
  readonly signal: AbortSignal
  /** Whether a settlement was asked for, or the claim is gone. */
  readonly settled: boolean
  /** Done. `result` is kept as the message's outcome; it must be encodable as JSON. */
  ack(result?: unknown): Promise<Settlement>
  /**
   * Acks inside a transaction that the caller has begun on its own connection to the same store (`connection`), and is
   * committed or rolled back with it; without one, in one of its own. `result` is kept as with `ack`.
   *
   * Answers at once: `'settled'`, which holds if the transaction is committed; `'stale'` when the claim is gone, so that
   * the caller can undo its writes; `'already-settled'` when this delivery was settled before. After a rollback the
   * claim is held as before: `settled` is false again, and it can be settled in any way.
   *
   * Throws, with nothing changed: `UnsupportedError` where the backend has no such transactions, `InvalidOptionError` for
   * a connection to another store, `BackendUnavailableError` when somebody else holds the lock for longer than that
   * connection waits (it waits on this thread), and the store's own errors.
   *
   * @example
   * ```ts
   * db.transaction(() => {
   *   db.prepare('INSERT INTO parcels …').run(delivery.payload)
   *   delivery.ackIn(db)
   * })()
   * ```
   */
  ackIn(connection: object, result?: unknown): Settlement
  /** Settles by the failure policies of the pipeline; with none, requeues with a growing delay until `maxDeliveries`. */
  fail(error: unknown): Promise<Settlement>
  requeue(options?: RequeueOptions): Promise<Settlement>
  deadLetter(reason: unknown): Promise<Settlement>
  /** Gives back uncounted, in the old position. */
  release(): Promise<Settlement>
  /**
   * Acks here and enqueues there, in one atomic step where both queues are on one backend. Across backends it
   * enqueues under an id made of this queue's and this message's, then acks: a repeat stores nothing new.
   */
  forward<U>(to: Queue<U>, payload: U, options?: EnqueueOptions): Promise<Settlement>
  /** Asks for a lease of this many milliseconds from now; `'capped'` when `maxLeaseMs` does not allow it. */
  extend(ms: number): Promise<'extended' | 'stale' | 'capped'>
  /** Proof of life: starts `maxLeaseMs` anew. The value is shown by `peek` and in events. */
  progress(value?: unknown): void
}
