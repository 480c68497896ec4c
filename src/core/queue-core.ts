/**
 * What a `Queue` object is inside: its hub, its codec and schema, and what the store said of the shared settings.
 */

import { bytes, type Codec, json } from '../codec.js'
import {
  DEFAULT_SETTINGS,
  type EnqueueStatus,
  MAX_PRIORITY,
  type NewMessage,
  type PurgeState,
  type QueueDriver,
  type Reply,
  type RequestToken,
  type SharedSettings,
} from '../driver.js'
import { CancelledError, ClosedError, LimitError, SchemaError, SettingsConflictError } from '../errors.js'
import { Eventual, isThenable } from '../eventual.js'
import type { Entry, Queue, QueueOptions } from '../queue.js'
import type { StandardSchemaV1 } from '../schema.js'
import { Consumer, type ConsumerContext, type ConsumerObserver, type ConsumerOptions } from './consumer.js'
import { bindCore } from './core-of.js'
import { Hub } from './hub.js'
import { onAbort } from './signals.js'

/** How many messages one step of a purge drops, so that none of them takes long. */
const PURGE_SLICE = 1_000

export class QueueCore<T> {
  readonly hub: Hub
  readonly consumers = new Set<Consumer<unknown>>()
  private codec: Codec<T>
  private settings: SharedSettings | undefined
  /** The store has the settings. What a transaction of the caller's said of them may have been rolled back. */
  private agreed = false
  private closing = false
  private readonly closeWorks = new Set<(error: ClosedError) => void>()

  constructor(
    readonly name: string,
    readonly options: QueueOptions<T>,
    owner: Queue<T>,
    close: () => PromiseLike<unknown>,
  ) {
    this.codec = options.codec ?? json<T>()
    this.hub = new Hub(
      name,
      options.backend,
      () => proposed(options),
      (stored) => {
        this.accept(stored)
        this.agreed = true
      },
      close,
    )
    bindCore(owner, this)
  }

  /** Throws when the queue is closed or closing. */
  assertOpen(): void {
    if (this.closing) throw this.closedError()
  }

  closedError(): ClosedError {
    return new ClosedError(`queue ${JSON.stringify(this.name)}`)
  }

  /** From now on nothing new is taken on. */
  beginClose(): void {
    this.closing = true
    for (const work of [...this.closeWorks]) work(this.closedError())
  }

  /** Calls back when the queue begins to close. */
  whenClosing(work: (error: ClosedError) => void): () => void {
    this.closeWorks.add(work)
    return () => this.closeWorks.delete(work)
  }

  /** Starts a consumer that is stopped with the queue at the latest. */
  consume(context: ConsumerContext<T>, options: ConsumerOptions, observer: ConsumerObserver<T>): Consumer<T> {
    const consumer = new Consumer(context, options, observer)
    this.consumers.add(consumer as Consumer<unknown>)
    consumer.closed.then(() => this.consumers.delete(consumer as Consumer<unknown>))
    return consumer
  }

  /** A call to the driver once the settings are agreed. */
  call<R>(verb: (driver: QueueDriver, token: RequestToken) => Reply<R>): Eventual<R> {
    const ready = this.ready()
    const send = () => this.hub.request((token) => verb(this.hub.driver, token))
    return ready.fulfilled ? send() : ready.then(send)
  }

  /** What a caller gets: a promise that also carries what `work` throws, and refuses after close. */
  answer<R>(work: () => Eventual<R>): Promise<R> {
    return this.hub.clock.promise(this.attempt(work))
  }

  /** Purges in slices, until nothing is left that was there. */
  purge(states: readonly PurgeState[], sum = 0): Eventual<number> {
    return this.call((driver, token) => driver.purge(states, PURGE_SLICE, token)).then((purged) =>
      purged < PURGE_SLICE ? sum + purged : this.purge(states, sum + purged),
    )
  }

  configure(changes: Parameters<Queue<T>['configure']>[0]): Eventual<void> {
    return (
      this.ready()
        // What is left as it is may have been changed since this queue was opened.
        .then(() => this.hub.request(() => this.hub.driver.settings({})))
        .then((stored) => this.hub.request(() => this.hub.driver.configure(changesOf(changes, stored))))
        .then((stored) => this.adopt(changes, stored))
    )
  }

  ready(): Eventual<SharedSettings> {
    return this.hub.ready()
  }

  /**
   * Checks and encodes one entry; throws, or rejects with, a typed error. A queue that takes the stored codec has to
   * ask for it first.
   */
  prepare(entry: Entry<T>): NewMessage | Eventual<NewMessage> {
    const checked = this.validate(entry.payload)
    return checked instanceof Eventual ? checked.then(() => this.encode(entry)) : this.encode(entry)
  }

  private encode(entry: Entry<T>): NewMessage | Eventual<NewMessage> {
    if (this.options.codec || this.settings) return this.message(entry, this.codec.encode(entry.payload))
    // Encoded now all the same, by the codec that takes such a payload: the caller may change it meanwhile.
    const { payload } = entry
    const codec = (payload instanceof Uint8Array ? bytes() : json()) as Codec<T>
    const early = this.message(entry, codec.encode(payload))
    return this.ready().then(() =>
      codec.name === this.codec.name ? early : { ...early, bytes: this.codec.encode(payload) },
    )
  }

  /** Agrees on the settings within a transaction of the caller's, unless the store has them. */
  agreeIn(ask: (proposed: Partial<SharedSettings>) => SharedSettings): void {
    if (!this.agreed) this.accept(ask(proposed(this.options)))
  }

  /** Stores what was prepared, all or nothing. */
  store(messages: readonly NewMessage[], signal?: AbortSignal): Eventual<readonly EnqueueStatus[]> {
    const stored = this.call((driver, token) => driver.enqueue(messages, token))
    return signal ? untilAbort(stored, signal) : stored
  }

  /** Decodes and checks. Throws, or rejects, for what is no payload of this queue. */
  decode(stored: Uint8Array): T | Eventual<T> {
    const value = this.codec.decode(stored)
    return this.options.schema ? this.validate(value) : value
  }

  private attempt<R>(work: () => Eventual<R>): Eventual<R> {
    try {
      this.assertOpen()
      return work()
    } catch (error) {
      return Eventual.rejected(error)
    }
  }

  /** What this process asked for itself is what it agrees to from now on. */
  private adopt(changes: Parameters<Queue<T>['configure']>[0], stored: SharedSettings): void {
    if (changes.codec) this.codec = changes.codec
    this.settings = stored
  }

  private message(entry: Entry<T>, encoded: Uint8Array): NewMessage {
    const maxPayloadBytes = this.settings?.limits.maxPayloadBytes ?? this.options.limits?.maxPayloadBytes
    if (maxPayloadBytes !== undefined && encoded.byteLength > maxPayloadBytes)
      throw new LimitError('maxPayloadBytes', maxPayloadBytes, encoded.byteLength)
    const { id = this.hub.session.nextId(), priority = 0, delayMs = 0, key, partition, headers } = entry
    const ttlMs = entry.ttlMs ?? this.options.ttlMs
    const message: { -readonly [K in keyof NewMessage]: NewMessage[K] } = {
      id,
      bytes: encoded,
      priority,
      delayMs: Math.max(delayMs, 0),
    }
    if (key !== undefined) message.key = key
    if (partition !== undefined) message.partition = partition
    if (headers !== undefined) message.headers = { ...headers }
    if (ttlMs !== undefined) {
      message.ttlMs = ttlMs
      message.whenExpired = this.options.whenExpired ?? 'drop'
    }
    return message
  }

  private validate(value: unknown): T | Eventual<T> {
    const { schema } = this.options
    if (!schema) return value as T
    const result = schema['~standard'].validate(value)
    if (isThenable(result))
      return Eventual.from(result as PromiseLike<StandardSchemaV1.Result<T>>).then((checked) =>
        accepted(checked, value),
      )
    return accepted(result as StandardSchemaV1.Result<T>, value)
  }

  /** Takes over what is stored, or refuses to go on with settings that differ. */
  private accept(stored: SharedSettings): void {
    const own = this.options
    const compare = (field: string, value: unknown, held: unknown) => {
      if (value !== undefined && value !== held) throw new SettingsConflictError(this.name, field, value, held)
    }
    compare('codec', own.codec?.name, stored.codec)
    compare('maxDeliveries', own.maxDeliveries, stored.maxDeliveries)
    compare('ageing.stepMs', own.ageing?.stepMs, stored.ageing?.stepMs)
    compare('ageing.cap', own.ageing?.cap, stored.ageing?.cap)
    for (const [field, value] of Object.entries(own.limits ?? {}))
      compare(`limits.${field}`, value, stored.limits[field as keyof typeof stored.limits])
    for (const [field, value] of Object.entries(own.retention ?? {}))
      compare(`retention.${field}`, value, stored.retention[field as keyof typeof stored.retention])
    if (own.codec === undefined) this.codec = builtIn(this.name, stored.codec)
    this.settings = stored
  }
}

/** The shared settings that these options name; partial groups are filled up with the defaults. */
function proposed<T>(options: QueueOptions<T>): Partial<SharedSettings> {
  const { codec, maxDeliveries, ageing, limits, retention } = options
  return {
    // Always named: what is stored under a codec cannot be read by another.
    codec: codec?.name ?? DEFAULT_SETTINGS.codec,
    ...(maxDeliveries !== undefined && { maxDeliveries }),
    ...(ageing && { ageing: { stepMs: ageing.stepMs, cap: ageing.cap ?? MAX_PRIORITY } }),
    ...(limits && { limits: { ...DEFAULT_SETTINGS.limits, ...limits } }),
    ...(retention && { retention: { ...DEFAULT_SETTINGS.retention, ...retention } }),
  }
}

/** The changes in full: a group of settings that is named in part keeps the rest as stored. */
function changesOf<T>(changes: Parameters<Queue<T>['configure']>[0], stored: SharedSettings): Partial<SharedSettings> {
  const { codec, maxDeliveries, ageing, limits, retention } = changes
  return {
    ...(codec && { codec: codec.name }),
    ...(maxDeliveries !== undefined && { maxDeliveries }),
    ...(ageing !== undefined && { ageing: ageing && { stepMs: ageing.stepMs, cap: ageing.cap ?? MAX_PRIORITY } }),
    ...(limits && { limits: { ...stored.limits, ...limits } }),
    ...(retention && { retention: { ...stored.retention, ...retention } }),
  }
}

function builtIn<T>(queue: string, codec: string): Codec<T> {
  if (codec === 'json') return json<T>()
  if (codec === 'bytes') return bytes() as unknown as Codec<T>
  throw new SettingsConflictError(queue, 'codec', 'json', codec)
}

function accepted<T>(result: StandardSchemaV1.Result<T>, value: unknown): T {
  if (result.issues) throw new SchemaError('payload', value, result.issues)
  return result.value
}

/** Stops waiting when the signal aborts; what was sent may have been stored all the same. */
function untilAbort<R>(pending: Eventual<R>, signal: AbortSignal): Eventual<R> {
  if (!pending.pending) return pending
  const result = new Eventual<R>()
  const forget = onAbort(signal, () => result.reject(new CancelledError('idle', { cause: signal.reason })))
  pending.then(
    (value) => {
      forget()
      result.resolve(value)
    },
    (error) => {
      forget()
      result.reject(error)
    },
  )
  return result
}
