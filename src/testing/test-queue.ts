/**
 * A queue in virtual time, fed by a marble string.
 */
import type { Observable, SchedulerLike } from 'rxjs'
import type { QueueDriver, QueueStats, StoredMessage } from '../driver.js'
import { Eventual } from '../eventual.js'
import { type Entry, Queue, type QueueOptions, type SourceOptions } from '../queue.js'
import type { QueueSource } from '../source.js'
import { memoryBackend } from '../sources/memory/index.js'
import { type Fault, type FaultyBackend, faultyBackend } from './faulty-backend.js'
import type { Latencies } from './latency.js'
import { ClaimRecord, type ClaimWindow, recordingBackend, type StepListener } from './recording-backend.js'

export interface TestQueueOptions<T> extends Partial<Omit<QueueOptions<T>, 'backend'>> {
  /** How long the calls of a verb take, as frames or as a marble. Default: the store answers in the same frame. */
  readonly latencies?: Latencies
  readonly faults?: readonly Fault[]
  /** The store says that it is pipelined: with lanes enough a consumer has two claims on their way. Default false. */
  readonly pipelined?: boolean
}

/** What a store holds: its numbers, and its messages, first those that are ready, in queue order. */
export interface Inspection {
  readonly stats: QueueStats
  readonly messages: readonly StoredMessage[]
}

/** A real `Queue` on a memory backend in a virtual-time scheduler, with what a test wants to see. */
export class TestQueue<T> extends Queue<T> {
  /** Ids, when the store has acked or forwarded them. */
  readonly acks: Observable<string>
  /** Ids, when the store has taken them back for another attempt. */
  readonly requeues: Observable<string>
  /** Ids, when the store has made them dead letters by a settlement. */
  readonly dead: Observable<string>
  /** Ids, when the store has taken them back uncounted. */
  readonly released: Observable<string>
  /** How many claims the store holds: now, and whenever that changes. */
  readonly held: Observable<number>
  /** Every call open to faults. */
  readonly backend: FaultyBackend

  readonly #scheduler: SchedulerLike
  readonly #record: ClaimRecord
  readonly #store: QueueDriver
  readonly #sources = new Set<QueueSource<T>>()
  #ended = false

  /** @internal */
  constructor(name: string, scheduler: SchedulerLike, options: TestQueueOptions<T>) {
    const { latencies, faults, pipelined = false, ...queueOptions } = options
    const record = new ClaimRecord(scheduler)
    const store = memoryBackend({ scheduler })
    const backend = faultyBackend(recordingBackend(store, scheduler, record, { latencies, pipelined }), faults)
    super(name, { ...queueOptions, backend })
    this.backend = backend
    this.acks = record.acks
    this.requeues = record.requeues
    this.dead = record.dead
    this.released = record.released
    this.held = record.held
    this.#scheduler = scheduler
    this.#record = record
    this.#store = store.open(name, { close: () => Eventual.resolved(undefined) })
    record.onChange = () => this.#endWhenEmpty()
  }

  /** The windows in which a message was claimed, for `expectSubscriptions`: `^` its grant, `!` its end in the store. */
  claimsOf(id: string): ClaimWindow[] {
    return this.#record.claimsOf(id)
  }

  override source(options?: SourceOptions): QueueSource<T> {
    const source = super.source(options)
    this.#sources.add(source)
    return source
  }

  /** Tells of each call of the driver. @internal */
  onStep(listener: StepListener | undefined): void {
    this.#record.onStep = listener
  }

  /** The test itself is wrong: ends it with this error. @internal */
  fail(error: Error): void {
    this.#scheduler.schedule(() => {
      throw error
    })
  }

  /** No more arrivals: the sources complete once nothing is left in the store. @internal */
  end(): void {
    this.#ended = true
    this.#endWhenEmpty()
  }

  /** What the store holds now, read behind the back of everything else, at once. */
  inspect(): Inspection {
    const driver = this.#store
    let stats: QueueStats | undefined
    const messages: StoredMessage[] = []
    driver.stats().then((value) => {
      stats = value
    })
    for (const state of ['ready', 'delayed', 'claimed'] as const) {
      driver.list(state, { limit: 1_000 }).then(({ items }) => messages.push(...items))
    }
    return { stats: stats as QueueStats, messages }
  }

  #endWhenEmpty(): void {
    if (!this.#ended) return
    const { ready, delayed, claimed } = this.inspect().stats
    if (ready + delayed + claimed > 0) return
    for (const source of this.#sources) void source.stop()
  }
}

/** An arrival: a payload, or an entry with its options. */
export type Arrival<T> = T | Entry<T>

/** Enqueues what a marble stands for; its character is the id, and the payload where no value is given. */
export function arrive<T>(
  queue: TestQueue<T>,
  marble: string,
  values: Readonly<Record<string, Arrival<T>>> | undefined,
): void {
  const value = values?.[marble]
  const entry = isEntry(value) ? value : { payload: (value ?? marble) as T }
  const { payload, ...options } = entry
  queue.enqueue(payload, { id: marble, ...options }).then(null, (error) => {
    queue.fail(new Error(`marble ${marble} could not be enqueued`, { cause: error }))
  })
}

function isEntry<T>(value: Arrival<T> | undefined): value is Entry<T> {
  return typeof value === 'object' && value !== null && 'payload' in value
}
