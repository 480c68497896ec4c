/**
 * A queue: the one object that users make.
 */

import type { Codec } from './codec.js'
import { DeadLetters } from './core/dead-letters.js'
import { enqueueEntries, enqueueOne } from './core/enqueue.js'
import { listing, type QueuedMessage } from './core/listing.js'
import { OutcomeWait } from './core/outcome-wait.js'
import { enqueueIn } from './core/own-transaction.js'
import { QueueCore } from './core/queue-core.js'
import { receiveOne } from './core/receive.js'
import * as rules from './core/rules.js'
import { Source } from './core/source.js'
import { stopAll } from './core/stop-all.js'
import type { Delivery } from './delivery.js'
import type { Backend, CancelReply, Limits, PurgeState, QueueDriver, QueueStats, Reply, Retention } from './driver.js'
import type { Released } from './events.js'
import { Eventual } from './eventual.js'
import { checkOptions } from './options.js'
import type { StandardSchemaV1 } from './schema.js'
import type { QueueSource } from './source.js'

export type { QueuedMessage } from './core/listing.js'

export interface QueueOptions<T> {
  readonly backend: Backend
  /** Checked at enqueue (`SchemaError`, nothing stored) and again when decoded (dead letter). Any Standard Schema. */
  readonly schema?: StandardSchemaV1<unknown, T>
  /** Default: what is stored with the queue, `json()` at first use. Shared. */
  readonly codec?: Codec<T>
  /**
   * How soon a dead consumer's claims return. Default 30 000, at least 50. Not a bound on processing time: the lease
   * of a live consumer is renewed.
   */
  readonly leaseMs?: number
  /** Failed attempts before a message becomes a dead letter. Default 5. Shared. */
  readonly maxDeliveries?: number
  /** One priority step is worth `stepMs` of waiting, for priorities up to `cap`. Default: strict priority. Shared. */
  readonly ageing?: { readonly stepMs: number; readonly cap?: number }
  /** Default: unbounded, payloads up to 1 MiB. Shared. */
  readonly limits?: { [K in keyof Limits]?: NonNullable<Limits[K]> }
  /** What nobody took within this time is dropped (counted) or dead-lettered. Default: kept. */
  readonly ttlMs?: number
  /** Default `'drop'`. */
  readonly whenExpired?: 'drop' | 'dead-letter'
  /** How long, and how many, outcomes are kept. Default: an hour, 10 000. Shared. */
  readonly retention?: Partial<Retention>
  /** A label for people, shown by `peek`. Never used for ownership. */
  readonly consumer?: string
}

export interface EnqueueOptions {
  /** Enqueue once: answers `'duplicate'` while a message of this id is held in any state, or its outcome is retained. */
  readonly id?: string
  /** 0..65535, lower first. Default 0. */
  readonly priority?: number
  /** Zero or less is now. */
  readonly delayMs?: number
  readonly key?: string
  readonly partition?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly ttlMs?: number
  /** Ends the wait for the answer with an `AbortError`. What was sent before may be stored all the same. */
  readonly signal?: AbortSignal
}

/** An enqueue that has nothing to wait for, and so nothing to abort. */
export type EnqueueInOptions = Omit<EnqueueOptions, 'signal'>

export interface Entry<T> extends EnqueueOptions {
  readonly payload: T
}

export interface Enqueued {
  readonly id: string
  readonly status: 'enqueued' | 'duplicate'
}

export interface SourceOptions {
  /** Ends the source with an `AbortError`, in the steps that `stop()` takes. */
  readonly signal?: AbortSignal
  /** Most unsettled deliveries where the observer cannot ask for more (RxJS). Default 1. */
  readonly credit?: number
  /** At most once: acked as it is handed over. Default false. */
  readonly autoAck?: boolean
  readonly group?: string
  readonly partition?: string
  /** `'empty'`: completes when nothing is ready and nothing of its own is in flight; `'idle'`: also nothing delayed or claimed. */
  readonly until?: 'empty' | 'idle'
  /** How long handlers go on undisturbed when stopped. Default 0. */
  readonly drainMs?: number
  /** How long settlements still count after the signals have aborted. Default 10 000. */
  readonly graceMs?: number
  /** Default: the queue's. */
  readonly leaseMs?: number
  /** How long a lease is renewed without `progress()`. Default an hour. */
  readonly maxLeaseMs?: number
}

export interface ReceiveOptions {
  /** Ends the wait. What has been received is not touched by it. */
  readonly signal?: AbortSignal
  /** How long to wait; 0 is one try. Default: for ever. */
  readonly timeoutMs?: number
}

/** The end of a message. `'pending'`: it has none yet. `'unknown'`: never seen, or past the retention. */
export type Outcome =
  | { readonly state: 'done'; readonly result: unknown }
  | { readonly state: 'dead'; readonly reason: string }
  | { readonly state: 'cancelled' }
  | { readonly state: 'expired' }
  | { readonly state: 'pending' }
  | { readonly state: 'unknown' }

/**
 * A named queue on a backend.
 *
 * Making one does no I/O. Every call rejects with a typed error for bad input before any I/O, with
 * `BackendUnavailableError` when the backend cannot be reached within 10 s, and with `ClosedError` after `close()`.
 *
 * @example
 * ```ts
 * await using orders = new Queue<Order>('orders', { backend: memoryBackend() })
 * await orders.enqueue({ sku: 'A-1', qty: 2 }, { id: 'order-1' })
 * for await (const d of orders.source({ signal })) { await ship(d.payload); await d.ack() }
 * ```
 */
export class Queue<T = unknown> implements AsyncDisposable {
  readonly name: string
  /** What could not be handled: listed page by page, requeued or purged by id or by filter. */
  readonly deadLetters: DeadLetters<T>
  readonly #core: QueueCore<T>
  #closed: Eventual<Released> | undefined

  constructor(name: string, options: QueueOptions<T>) {
    rules.name(name, 'queue name')
    rules.required(options, 'QueueOptions')
    checkOptions(options, 'QueueOptions', rules.queueOptions)
    rules.backend(options.backend, 'QueueOptions.backend')
    this.name = name
    this.#core = new QueueCore(name, options, this, () => this.#close())
    this.deadLetters = new DeadLetters(this.#core)
  }

  /** Stores one message. Fulfils when the backend has it. */
  enqueue(payload: T, options?: EnqueueOptions): Promise<Enqueued> {
    return this.#answer(() => {
      checkOptions(options, 'enqueue', rules.enqueueOptions)
      return enqueueOne(this.#core, payload, options)
    })
  }

  /** Stores all of them in this order, or none. An empty list does no I/O. */
  enqueueAll(entries: readonly Entry<T>[], options?: { readonly signal?: AbortSignal }): Promise<Enqueued[]> {
    return this.#answer(() => {
      rules.entries(entries, 'entries')
      checkOptions(options, 'enqueueAll', rules.signalOption)
      return enqueueEntries(this.#core, entries, options?.signal)
    })
  }

  /**
   * Stores one message inside a transaction that the caller has begun on its own connection to the same store: it is
   * committed, and rolled back, with what else is in it; without one it is stored in one of its own. Answers at once.
   *
   * Throws what `enqueue` rejects with, and nothing is changed then: also `UnsupportedError` where the backend has no
   * such transactions, `InvalidOptionError` for a connection to another store or a schema that validates
   * asynchronously, `BackendUnavailableError` when somebody else holds the lock for longer than that connection waits.
   *
   * @example
   * ```ts
   * db.transaction(() => {
   *   db.prepare('INSERT INTO orders …').run(order)
   *   orders.enqueueIn(db, order)
   * })()
   * ```
   */
  enqueueIn(connection: object, payload: T, options?: EnqueueInOptions): Enqueued {
    return enqueueIn(this.#core, connection, payload, options)
  }

  /** A source of deliveries: cold, each subscription and each iteration is a consumer of its own. No I/O. */
  source(options: SourceOptions = {}): QueueSource<T> {
    this.#core.assertOpen()
    checkOptions(options, 'source', rules.sourceOptions)
    rules.supported(options, this.#core.options.backend)
    return new Source(this.#core, options)
  }

  /** Claims the next message, and waits for one. `undefined`: the time is up and the queue was empty. */
  receive(options?: ReceiveOptions): Promise<Delivery<T> | undefined> {
    return this.#answer(() => {
      checkOptions(options, 'receive', rules.receiveOptions)
      return receiveOne(this.#core, { ...options, take: false })
    })
  }

  /** Claims the next message if there is one now. */
  tryReceive(options?: { readonly signal?: AbortSignal }): Promise<Delivery<T> | undefined> {
    return this.#answer(() => {
      checkOptions(options, 'tryReceive', rules.signalOption)
      return receiveOne(this.#core, { ...options, timeoutMs: 0, take: false })
    })
  }

  /** Takes the next payload at most once, and waits for one: if this process dies now, it is dropped, not redelivered. */
  take(options?: ReceiveOptions): Promise<T | undefined> {
    return this.#answer(() => {
      checkOptions(options, 'take', rules.receiveOptions)
      return receiveOne(this.#core, { ...options, take: true }).then((delivery) => delivery?.payload)
    })
  }

  /** Takes the next payload at most once, if there is one now. */
  tryTake(): Promise<T | undefined> {
    return this.#answer(() =>
      receiveOne(this.#core, { timeoutMs: 0, take: true }).then((delivery) => delivery?.payload),
    )
  }

  stats(): Promise<QueueStats> {
    return this.#call((driver) => driver.stats())
  }

  /** How many are ready. Advisory: it may have changed before you read it. */
  size(): Promise<number> {
    return this.#answer(() => this.#core.call((driver) => driver.stats()).then(({ ready }) => ready))
  }

  /** Nobody claims from it any more, in any process, also after a restart, until `resume()`. What is held may be settled. */
  pause(): Promise<void> {
    return this.#call((driver) => driver.pause())
  }

  resume(): Promise<void> {
    return this.#call((driver) => driver.resume())
  }

  /**
   * `'cancelled'`: it was waiting and will never be delivered. `'cancelling'`: it is being handled, its signal aborts
   * and it is not delivered again. `'finished'`: it had come to its end. `'unknown'`: no such message.
   */
  cancel(id: string): Promise<CancelReply> {
    return this.#answer(() => {
      rules.name(id, 'id')
      return this.#core.call((driver, token) => driver.cancel(id, token))
    })
  }

  /** How a message ended. Waits for its end, without a bound unless `timeoutMs` gives one; then answers `'pending'`. */
  outcome(id: string, options: ReceiveOptions = {}): Promise<Outcome> {
    return this.#answer(() => {
      rules.name(id, 'id')
      checkOptions(options, 'outcome', rules.receiveOptions)
      return new OutcomeWait(this.#core, id, options).result
    })
  }

  /** Lists messages without claiming them, page by page. */
  peek(
    options: { readonly state?: 'ready' | 'delayed' | 'claimed'; readonly limit?: number } = {},
  ): AsyncIterable<QueuedMessage<T>> {
    this.#core.assertOpen()
    checkOptions(options, 'peek', rules.peekOptions)
    return listing(this.#core, options)
  }

  /** Drops what is ready and delayed, or the states named, and answers how many. A claimed one's later ack answers `'stale'`. */
  purge(options: { readonly state?: PurgeState | readonly PurgeState[] } = {}): Promise<number> {
    return this.#answer(() => {
      checkOptions(options, 'purge', rules.purgeOptions)
      const state = options.state ?? ['ready', 'delayed']
      return this.#core.purge(typeof state === 'string' ? [state] : state)
    })
  }

  /** Changes the shared settings for all processes. They are read again when a process opens the queue. */
  configure(
    changes: Pick<QueueOptions<T>, 'maxDeliveries' | 'limits' | 'retention'> & {
      readonly ageing?: QueueOptions<T>['ageing'] | null
      readonly codec?: Codec<T>
    },
  ): Promise<void> {
    return this.#answer(() => {
      checkOptions(changes, 'configure', rules.sharedSettings)
      return this.#core.configure(changes)
    })
  }

  /** Stops every consumer, in the three steps of `stop()`, and lets go of the backend. Repeating it answers the same. */
  close(options: { readonly graceMs?: number } = {}): Promise<Released> {
    return this.#core.hub.clock.promise(
      Eventual.resolved(undefined).then(() => {
        checkOptions(options, 'close', rules.closeOptions)
        return this.#close(options.graceMs)
      }),
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #close(graceMs?: number): Eventual<Released> {
    if (this.#closed) return this.#closed
    this.#core.beginClose()
    const error = () => this.#core.closedError()
    this.#closed = stopAll(this.#core.consumers, { graceMs, ending: { error } }).then((released) =>
      this.#core.hub.close().then(() => released),
    )
    return this.#closed
  }

  #call<R>(verb: (driver: QueueDriver) => Reply<R>): Promise<R> {
    return this.#answer(() => this.#core.call(verb))
  }

  #answer<R>(work: () => Eventual<R>): Promise<R> {
    return this.#core.answer(work)
  }
}
