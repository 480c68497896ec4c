/**
 * Runs everything that was asked for in one turn of the event loop in one transaction.
 *
 * A step is a function of the transaction alone, so it can be run again when its transaction was rolled back. A step
 * that refuses throws a typed error before it has changed anything; whatever else is thrown rolls the transaction
 * back, and its steps are run again one by one, so that only the one at fault fails.
 *
 * SQLite works on this thread: a transaction that has lasted for {@link SLICE_MS} is committed, and the rest waits for
 * the next turn of the loop, so that timers and sockets get theirs. For the same reason a lock that somebody else
 * holds is waited for by short tries, never inside SQLite.
 */
import { BackendUnavailableError, MillraceError } from '../../errors.js'
import { Eventual } from '../../eventual.js'
import { asBackendError, busyError, isBusy } from './errors.js'
import type { QueueRow } from './queue-row.js'
import { type Statements, Transaction } from './transaction.js'

/** How long one transaction may go on taking in further steps. */
const SLICE_MS = 4

/** The tries to get a lock: the first pause and the longest. */
const FIRST_PAUSE_MS = 1
const LONGEST_PAUSE_MS = 20

type Work<T> = (tx: Transaction) => T

/** A step that nobody wants any more when the signal has aborted, and what it answers when it has not run by then. */
export interface Withdrawal<T> {
  readonly signal: AbortSignal | undefined
  readonly answer: T
}

interface Step {
  readonly withdrawal: Withdrawal<unknown> | undefined
  readonly work: Work<unknown>
  readonly reply: Eventual<unknown>
  readonly askedAt: number
  /** Runs in a transaction of its own, since it may be what failed the one before. */
  alone: boolean
}

export interface GroupCommitOptions {
  readonly path: string
  /** The open connection, opened now if need be. May throw what SQLite throws. */
  readonly statements: () => Statements
  /** How long a step may wait for a lock. */
  readonly busyTimeoutMs: number
  /** Told of the queues that a committed transaction has touched, before its steps are answered. */
  readonly committed: (queues: Iterable<QueueRow>) => void
}

export class GroupCommit {
  readonly #options: GroupCommitOptions
  #steps: Step[] = []
  #scheduled = false
  #busyTries = 0

  constructor(options: GroupCommitOptions) {
    this.#options = options
  }

  /** Answers when the transaction in which `work` ran has been committed. */
  ask<T>(work: Work<T>, withdrawal?: Withdrawal<T>): Eventual<T> {
    const reply = new Eventual<T>()
    const askedAt = performance.now()
    this.#steps.push({ work, reply: reply as Eventual<unknown>, withdrawal, askedAt, alone: false })
    this.#schedule()
    return reply
  }

  /** Fulfils when all that was asked so far has been answered. */
  settled(): Eventual<void> {
    const last = this.#steps.at(-1)?.reply
    const done = () => undefined
    return last === undefined ? Eventual.resolved(undefined) : last.then(done, done)
  }

  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(() => this.#turn())
  }

  #turn(): void {
    this.#scheduled = false
    if (this.#steps.length === 0) return
    let tx: Transaction
    try {
      tx = this.#begin()
    } catch (error) {
      return isBusy(error) ? this.#waitForLock(error) : this.#failAll(error)
    }
    this.#busyTries = 0
    this.#commit(tx)
    if (this.#steps.length > 0) this.#schedule()
  }

  #begin(): Transaction {
    const statements = this.#options.statements()
    // In a database that is shared with the caller, whose transaction is not ours to join.
    if (statements.database.inTransaction)
      throw new BackendUnavailableError(`${this.#options.path} is in a transaction of its owner`)
    statements.of('BEGIN IMMEDIATE').run()
    try {
      return new Transaction(statements)
    } catch (error) {
      rollBack(statements)
      throw error
    }
  }

  #commit(tx: Transaction): void {
    const answers: (() => void)[] = []
    try {
      this.#runSteps(tx, answers)
      tx.save()
      tx.sql('COMMIT').run()
    } catch (error) {
      rollBack(tx.statements)
      return this.#undone(answers.length, error)
    }
    this.#steps.splice(0, answers.length)
    this.#options.committed(tx.queues)
    for (const answer of answers) tell(answer)
  }

  /** Runs steps from the first on. They stay where they are until they are committed. */
  #runSteps(tx: Transaction, answers: (() => void)[]): void {
    const endsAt = performance.now() + SLICE_MS
    for (const step of this.#steps) {
      if (answers.length > 0 && (step.alone || performance.now() >= endsAt)) return
      // Counted before it runs, since it may be what throws.
      const index = answers.push(nothing) - 1
      answers[index] = runStep(step, tx)
      if (step.alone) return
    }
  }

  /** Nothing of the first `count` steps was stored. One alone has failed by itself; several are tried one by one. */
  #undone(count: number, error: unknown): void {
    if (isBusy(error)) return this.#waitForLock(error)
    if (count > 1) {
      for (const step of this.#steps.slice(0, count)) step.alone = true
      return
    }
    const [step] = this.#steps.splice(0, 1)
    step?.reply.reject(asBackendError(error, this.#options.path))
  }

  /** Tries again in a while. What has waited for too long, or is not wanted any more, is over, and was not done. */
  #waitForLock(error: unknown): void {
    const now = performance.now()
    // One error for all, however many there are.
    const reason = busyError(this.#options.path, error)
    const over: (() => void)[] = []
    this.#steps = this.#steps.filter(({ reply, withdrawal, askedAt }) => {
      if (withdrawal?.signal?.aborted) over.push(() => reply.resolve(withdrawal.answer))
      else if (now - askedAt >= this.#options.busyTimeoutMs) over.push(() => reply.reject(reason))
      else return true
      return false
    })
    if (this.#steps.length > 0) {
      this.#scheduled = true
      setTimeout(() => this.#turn(), this.#pauseMs())
    }
    for (const answer of over) tell(answer)
  }

  /** Grows, and is never the same for two who wait for the same lock. */
  #pauseMs(): number {
    const fullMs = Math.min(FIRST_PAUSE_MS * 2 ** this.#busyTries, LONGEST_PAUSE_MS)
    this.#busyTries += 1
    return fullMs * (0.5 + Math.random() / 2)
  }

  #failAll(error: unknown): void {
    const reason = asBackendError(error, this.#options.path)
    for (const { reply } of this.#steps.splice(0)) tell(() => reply.reject(reason))
  }
}

/** Whatever an answer leads to, the others are told as well. */
function tell(answer: () => void): void {
  try {
    answer()
  } catch (error) {
    queueMicrotask(() => {
      throw error
    })
  }
}

function nothing(): void {}

/** Some errors have rolled back already, and a connection that is lost cannot: nothing is stored either way. */
function rollBack(statements: Statements): void {
  try {
    if (statements.database.inTransaction) statements.of('ROLLBACK').run()
  } catch {}
}

/** Runs a step; what it came to is told when the transaction has been committed. */
function runStep({ work, reply }: Step, tx: Transaction): () => void {
  try {
    const value = work(tx)
    return () => reply.resolve(value)
  } catch (error) {
    if (!(error instanceof MillraceError)) throw error
    return () => reply.reject(error)
  }
}
