/**
 * Tells who waits that something has changed: what this process committed at once, what another process did within
 * {@link POLL_MS}.
 *
 * SQLite has no notifications, but a number that changes with every commit of another connection (`data_version`,
 * https://sqlite.org/pragma.html#pragma_data_version). Reading it takes about a microsecond and no lock; only when it
 * has changed are the rows of the queues looked at, whose counters say what there is to tell.
 */
import { Observable, Subject } from 'rxjs'
import type { Hint } from '../../driver.js'
import type { Counters, QueueRow } from './queue-row.js'
import type { Statements } from './transaction.js'

/** How often the file is looked at while somebody waits. */
const POLL_MS = 20

/** How many messages are looked up in one go. */
const LOOKED_UP_AT_ONCE = 500

const DATA_VERSION = 'PRAGMA data_version'
const SELECT_COUNTERS = `SELECT id, wakes, cancels, ends, deaths, purgedTotal, droppedTotal FROM millrace_queues
  WHERE name = ?`
const CANCELLED_CLAIMS = `SELECT id FROM millrace_messages WHERE queue = ? AND state = 2 AND cancelRequested = 1`
const PENDING = `SELECT 1 FROM millrace_messages WHERE queue = ? AND id = ? AND state < 3`

/** The counters of a queue that tell of changes. */
interface Signs {
  readonly id: number
  readonly wakes: number
  readonly cancels: number
  readonly endings: number
}

type Counted = Pick<Counters, 'wakes' | 'cancels' | 'ends' | 'deaths' | 'purgedTotal' | 'droppedTotal'>

function signsOf(id: number, counters: Counted): Signs {
  const { wakes, cancels, ends, deaths, purgedTotal, droppedTotal } = counters
  return { id, wakes, cancels, endings: ends + deaths + purgedTotal + droppedTotal }
}

/** The listeners of one queue, and what they have been told of. */
interface Board {
  readonly hints: Subject<Hint>
  readonly watched: Set<string>
  /** Those of the watched that are still to be looked up, since somebody else has ended some message. */
  toLookUp: string[]
  seen: Signs | undefined
}

export interface HintsOptions {
  /** The open connection, opened now if need be. May throw what SQLite throws. */
  readonly statements: () => Statements
  readonly asError: (error: unknown) => Error
  /** Whether the caller works on our connection too, whose commits the number does not tell of. */
  readonly shared: boolean
}

export class Hints {
  readonly #options: HintsOptions
  readonly #boards = new Map<string, Board>()
  #timer: NodeJS.Timeout | undefined
  /** The connection that was looked at last, and what it said: another one counts from a number of its own. */
  #looked: { readonly on: Statements; readonly version: string } | undefined
  #down = false

  constructor(options: HintsOptions) {
    this.#options = options
  }

  /** The hints of a queue. While anybody listens, the file is looked at, which keeps the process alive. */
  of(queue: string): Observable<Hint> {
    return new Observable((observer) => {
      const board = this.#boardOf(queue)
      const subscription = board.hints.subscribe(observer)
      this.#timer ??= setInterval(() => this.#poll(), POLL_MS)
      return () => {
        subscription.unsubscribe()
        this.#rest()
      }
    })
  }

  /** A hint follows when this message has ended. */
  watch(queue: string, id: string): void {
    this.#boardOf(queue).watched.add(id)
  }

  /** A transaction of this connection has changed these queues. */
  committed(queues: Iterable<QueueRow>): void {
    try {
      for (const queue of queues) this.#tellOwn(queue)
    } catch (error) {
      // What was committed is answered all the same.
      this.#fail(error)
    }
  }

  #boardOf(queue: string): Board {
    let board = this.#boards.get(queue)
    if (board === undefined) {
      board = { hints: new Subject(), watched: new Set(), toLookUp: [], seen: undefined }
      this.#boards.set(queue, board)
    }
    return board
  }

  #rest(): void {
    for (const [queue, { hints }] of this.#boards) if (!hints.observed) this.#boards.delete(queue)
    if (this.#boards.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #poll(): void {
    try {
      const statements = this.#options.statements()
      const looked = { on: statements, version: JSON.stringify(statements.of(DATA_VERSION).get()) }
      const same = this.#looked?.on === looked.on && this.#looked.version === looked.version
      if (!same || this.#options.shared) this.#readAll(statements)
      this.#looked = looked
      for (const board of this.#boards.values()) if (board.seen) this.#lookUp(board, board.seen.id)
      this.#up()
    } catch (error) {
      this.#fail(error)
    }
  }

  #readAll(statements: Statements): void {
    for (const [queue, board] of [...this.#boards]) {
      const row = statements.of(SELECT_COUNTERS).get(queue) as (Counted & { readonly id: number }) | undefined
      if (row !== undefined) this.#tell(board, signsOf(row.id, row))
    }
  }

  /** What others had changed before this transaction is told first; which messages it has ended itself is known. */
  #tellOwn({ name, id, loaded, counters, ended }: QueueRow): void {
    const board = this.#boards.get(name)
    if (board === undefined) return
    this.#tell(board, signsOf(id, loaded))
    for (const message of ended) if (board.watched.delete(message)) board.hints.next({ kind: 'outcome', id: message })
    const signs = signsOf(id, counters)
    board.seen = { ...signsOf(id, loaded), endings: signs.endings }
    this.#tell(board, signs)
  }

  #tell(board: Board, signs: Signs): void {
    const { seen } = board
    board.seen = signs
    if (signs.wakes !== seen?.wakes) board.hints.next({ kind: 'ready' })
    if (signs.cancels !== seen?.cancels) this.#tellCancels(board, signs.id)
    if (signs.endings !== seen?.endings) board.toLookUp = [...board.watched]
    this.#lookUp(board, signs.id)
  }

  #tellCancels({ hints }: Board, queue: number): void {
    const rows = this.#options.statements().of(CANCELLED_CLAIMS).all(queue) as { id: string }[]
    for (const { id } of rows) hints.next({ kind: 'cancel', id })
  }

  /** Looks up a slice of the watched messages; the rest follows with the next look at the file. */
  #lookUp({ hints, watched, toLookUp }: Board, queue: number): void {
    for (const id of toLookUp.splice(0, LOOKED_UP_AT_ONCE)) {
      if (!watched.has(id) || this.#options.statements().of(PENDING).get(queue, id) !== undefined) continue
      watched.delete(id)
      hints.next({ kind: 'outcome', id })
    }
  }

  #fail(error: unknown): void {
    if (this.#down) return
    this.#down = true
    this.#tellAll({ kind: 'down', error: this.#options.asError(error) })
  }

  #up(): void {
    if (!this.#down) return
    this.#down = false
    this.#tellAll({ kind: 'up' })
  }

  #tellAll(hint: Hint): void {
    for (const { hints } of [...this.#boards.values()]) hints.next(hint)
  }
}
