import { type Observable, Subject, takeUntil, throwError } from 'rxjs'
import type {
  CancelReply,
  ClaimReply,
  ClaimRequest,
  DriverFeatures,
  EnqueueStatus,
  Hint,
  NewMessage,
  OwnTransaction,
  Page,
  Paged,
  PurgeState,
  QueueDriver,
  QueueStats,
  Renewal,
  RenewResult,
  Reply,
  RequestToken,
  SettleCommand,
  SettleResult,
  SharedSettings,
  StoredDeadLetter,
  StoredMessage,
  StoredOutcome,
  SweepReply,
} from '../../driver.js'
import { refused, replied } from '../../driver.js'
import { BackendUnavailableError, ClosedError, describeValue, UnsupportedError } from '../../errors.js'
import type { Eventual } from '../../eventual.js'
import type { SessionBook } from '../local/sessions.js'
import { admit, planAdmission } from './admission.js'
import { claim, withNextDue } from './claiming.js'
import { purgeDead, reviveDead } from './dead-letters.js'
import type { Withdrawal } from './group-commit.js'
import { cancelMessage, outcomeOf, purgeStates, statsOf } from './inspection.js'
import { listDeadLetters, listMessages } from './listing.js'
import { MAINTENANCE_STEP, maintain, open, openQueue } from './maintenance.js'
import type { QueueRow } from './queue-row.js'
import { renew } from './renewing.js'
import { configure, setPaused, settings } from './settings.js'
import { settle } from './settling.js'
import type { Transaction } from './transaction.js'

/** The answer to a claim that was not wanted any more before it was made. */
const NOTHING_CLAIMED: ClaimReply = { claims: [], paused: false, withdrawn: true }

/** What a driver needs of the backend that opened it. */
export interface DriverHost {
  /** False once the backend is closed. */
  readonly usable: boolean
  readonly features: DriverFeatures
  readonly sessions: SessionBook
  ask<T>(work: (tx: Transaction) => T, withdrawal?: Withdrawal<T>): Eventual<T>
  hintsOf(queue: string): Observable<Hint>
  /** A hint `outcome` follows when this message has ended. */
  watch(queue: string, id: string): void
  ownTransactionOf(queue: string): OwnTransaction
  letGo(driver: SqliteDriver): Reply<void>
}

/** One opened queue: each verb is a step of the next transaction. */
export class SqliteDriver implements QueueDriver {
  declare readonly ownTransaction?: OwnTransaction
  readonly #queue: string
  readonly #host: DriverHost
  readonly #closed = new Subject<void>()
  readonly #sessionNames = new Set<string>()
  /** Answers that say that nothing was done: asking again runs the request. */
  readonly #notDone = new WeakSet<object>()
  #isOpen = true

  constructor(queue: string, host: DriverHost) {
    this.#queue = queue
    this.#host = host
    if (host.features.ownTransactions) this.ownTransaction = host.ownTransactionOf(queue)
  }

  settings(proposed: Partial<SharedSettings>): Reply<SharedSettings> {
    return this.#step((tx, queue) => settings(tx, queue, proposed))
  }

  configure(changes: Partial<SharedSettings>): Reply<SharedSettings> {
    return this.#step((tx, queue) => configure(tx, queue, changes))
  }

  enqueue(batch: readonly NewMessage[], token: RequestToken): Reply<readonly EnqueueStatus[]> {
    return this.#once(token, (tx, queue) => admit(tx, queue, batch, planAdmission(tx, queue, batch)))
  }

  claim(request: ClaimRequest): Reply<ClaimReply> {
    const { group, partition } = request
    const unsupported = group !== undefined ? 'groups' : partition !== undefined ? 'partitions' : undefined
    if (unsupported !== undefined) return refused(new UnsupportedError('sqlite', unsupported))
    this.#host.sessions.noteLease(request.leaseMs)
    const withdrawal = { signal: request.signal, answer: NOTHING_CLAIMED }
    return this.#once(request.token, (tx, queue) => claim(tx, queue, request), withdrawal)
  }

  settle(commands: readonly SettleCommand[], token: RequestToken): Reply<readonly SettleResult[]> {
    return this.#once(token, (tx, queue) => commands.map((command) => settle(tx, queue, command)))
  }

  renew(renewals: readonly Renewal[]): Reply<readonly RenewResult[]> {
    for (const { leaseMs } of renewals) this.#host.sessions.noteLease(leaseMs)
    return this.#step((tx, queue) => renewals.map((renewal) => renew(tx, queue, renewal)))
  }

  sweep(limit: number): Reply<SweepReply> {
    // What is left over is due at once, which the answer tells.
    const step = Math.min(limit, MAINTENANCE_STEP)
    return this.#ask((tx) => {
      let moved: number | undefined
      const queue = tx.queue(this.#queue, (row) => {
        moved = open(tx, row, step)
      })
      moved ??= maintain(tx, queue, step)
      return withNextDue<{ moved: number; nextDueMs?: number }>({ moved }, tx, queue)
    })
  }

  arrivals(): Observable<Hint> {
    if (!this.#mayEnter()) return throwError(() => this.#closedError())
    return this.#host.hintsOf(this.#queue).pipe(takeUntil(this.#closed))
  }

  stats(): Reply<QueueStats> {
    return this.#step(statsOf)
  }

  list(state: StoredMessage['state'], page: Page): Reply<Paged<StoredMessage>> {
    return this.#step((tx, queue) => listMessages(tx, queue, state, page))
  }

  deadLetters(page: Page): Reply<Paged<StoredDeadLetter>> {
    return this.#step((tx, queue) => listDeadLetters(tx, queue, page))
  }

  requeueDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    return this.#once(token, (tx, queue) => reviveDead(tx, queue, ids))
  }

  purgeDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    return this.#once(token, (tx, queue) => purgeDead(tx, queue, ids))
  }

  purge(states: readonly PurgeState[], limit: number, token: RequestToken): Reply<number> {
    return this.#once(token, (tx, queue) => purgeStates(tx, queue, states, limit))
  }

  pause(): Reply<void> {
    return this.#step((_, queue) => setPaused(queue, true))
  }

  resume(): Reply<void> {
    return this.#step((_, queue) => setPaused(queue, false))
  }

  cancel(id: string, token: RequestToken): Reply<CancelReply> {
    return this.#once(token, (tx, queue) => cancelMessage(tx, queue, id))
  }

  outcome(id: string, watch: boolean): Reply<StoredOutcome> {
    // Watched from before it is looked at: its end may come in the same transaction.
    if (watch) this.#host.watch(this.#queue, id)
    return this.#step((tx, queue) => outcomeOf(tx, queue, id))
  }

  close(): Reply<void> {
    if (!this.#isOpen) return replied(undefined)
    this.#isOpen = false
    this.#host.sessions.close(this.#sessionNames)
    this.#closed.next()
    return this.#host.letGo(this)
  }

  #step<T>(work: (tx: Transaction, queue: QueueRow) => T, withdrawal?: Withdrawal<T>): Reply<T> {
    return this.#ask((tx) => work(tx, openQueue(tx, this.#queue)), withdrawal)
  }

  #ask<T>(work: (tx: Transaction) => T, withdrawal?: Withdrawal<T>): Reply<T> {
    return this.#mayEnter() ? this.#host.ask(work, withdrawal) : refused(this.#closedError())
  }

  /** Runs a request once, however often it is asked for: a repeat gets the answer of the first, also while it runs. */
  #once<T>(token: RequestToken, work: (tx: Transaction, queue: QueueRow) => T, withdrawal?: Withdrawal<T>): Reply<T> {
    if (!this.#mayEnter()) return refused(this.#closedError())
    const now = performance.now()
    const { sessions } = this.#host
    this.#sessionNames.add(token.session)
    const session = sessions.open(token.session)
    session.heardAt = now
    sessions.inspectOne(now)
    const known = session.recall(token)
    if (known !== undefined && !this.#notDone.has(known)) return known
    const reply = this.#step(work, withdrawal)
    session.remember(token.seq, reply)
    reply.then(null, (error) => {
      if (error instanceof BackendUnavailableError) this.#notDone.add(reply)
    })
    return reply
  }

  #mayEnter(): boolean {
    return this.#isOpen && this.#host.usable
  }

  #closedError(): ClosedError {
    return new ClosedError(this.#host.usable ? `queue ${describeValue(this.#queue)}` : 'the sqlite backend')
  }
}
