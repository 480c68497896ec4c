/**
 * The row of a queue: its settings, counters and sequence numbers, as one transaction sees and changes them.
 *
 * The row is read once when a transaction first touches the queue and written once before it commits, so that counting
 * costs the same for one message as for a thousand.
 */
import { DEFAULT_SETTINGS, type SharedSettings } from '../../driver.js'

/** The columns that change while a queue is used. */
export interface Counters {
  settings: string
  paused: number
  ready: number
  delayed: number
  claimed: number
  dead: number
  /** Bytes of all that is ready, delayed or claimed. */
  bytes: number
  /** Bytes of what is ready alone. */
  readyBytes: number
  /** Finished messages whose outcome is retained. */
  outcomes: number
  enqueuedTotal: number
  ackedTotal: number
  forwardedTotal: number
  purgedTotal: number
  expiredTotal: number
  cancelledTotal: number
  droppedTotal: number
  arrivals: number
  latestArrivalAt: number
  fences: number
  deaths: number
  ends: number
  /** Rises when something becomes ready or due earlier: who waits in another process looks at it. */
  wakes: number
  /** Rises when the cancel of a claimed message is requested. */
  cancels: number
  /** Up to which `seq` messages stand where the present ageing puts them; null when all do. */
  reranked: number | null
}

const COLUMNS: readonly (keyof Counters)[] = [
  'settings',
  'paused',
  'ready',
  'delayed',
  'claimed',
  'dead',
  'bytes',
  'readyBytes',
  'outcomes',
  'enqueuedTotal',
  'ackedTotal',
  'forwardedTotal',
  'purgedTotal',
  'expiredTotal',
  'cancelledTotal',
  'droppedTotal',
  'arrivals',
  'latestArrivalAt',
  'fences',
  'deaths',
  'ends',
  'wakes',
  'cancels',
  'reranked',
]

export const SELECT_QUEUE = `SELECT id, ${COLUMNS.join(', ')} FROM millrace_queues WHERE name = ?`
export const INSERT_QUEUE = `INSERT INTO millrace_queues (name, settings) VALUES (?, '{}')`
export const UPDATE_QUEUE = `UPDATE millrace_queues SET ${COLUMNS.map((name) => `${name} = ?`).join(', ')} WHERE id = ?`

export class QueueRow {
  readonly id: number
  readonly counters: Counters
  /** The counters as they were before this transaction. */
  readonly loaded: Readonly<Counters>
  /** The messages that this transaction has brought to their end. */
  readonly ended: string[] = []
  #settings: SharedSettings | undefined
  /** The next instant at which something happens by itself, as far as this transaction knows. */
  nextAt = Number.POSITIVE_INFINITY

  constructor(
    readonly name: string,
    { id, ...counters }: Counters & { readonly id: number },
  ) {
    this.id = id
    this.loaded = counters
    this.counters = { ...counters }
  }

  /** All settings, with the defaults for those that nobody has named. */
  get settings(): SharedSettings {
    this.#settings ??= { ...DEFAULT_SETTINGS, ...this.named }
    return this.#settings
  }

  /** The settings that somebody has named. */
  get named(): Partial<SharedSettings> {
    return JSON.parse(this.counters.settings)
  }

  nameSettings(settings: Partial<SharedSettings>): void {
    this.counters.settings = JSON.stringify({ ...this.named, ...settings })
    this.#settings = undefined
  }

  /** How many messages count against `maxLength`. */
  get length(): number {
    return this.counters.ready + this.counters.delayed + this.counters.claimed
  }

  /** Something is ready, or due earlier than was known. */
  wake(): void {
    this.counters.wakes += 1
  }

  /** Something happens by itself at this instant; who waits is told if that is earlier than all else. */
  expect(at: number): void {
    if (at >= this.nextAt) return
    this.nextAt = at
    this.wake()
  }

  /** The values for {@link UPDATE_QUEUE}; `undefined` when nothing has changed. */
  get changes(): unknown[] | undefined {
    if (COLUMNS.every((name) => this.counters[name] === this.loaded[name])) return undefined
    return [...COLUMNS.map((name) => this.counters[name]), this.id]
  }
}
