import { type Observable, Subject, takeUntil, throwError } from 'rxjs'
import type {
  CancelReply,
  ClaimReply,
  ClaimRequest,
  EnqueueStatus,
  Hint,
  NewMessage,
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
import { ClosedError, describeValue, LimitError, UnsupportedError } from '../../errors.js'
import { refusalIn } from './errors.js'
import {
  batchArguments,
  claimReply,
  commandArguments,
  leaseFor,
  renewalArguments,
  settingsOf,
  settleResult,
  statsOf,
  storedDeadLetter,
  storedMessage,
  storedOutcome,
  text,
  whole,
} from './protocol.js'
import type { Argument } from './script.js'
import type { Turns } from './turn.js'

export const MAX_BATCH = 10_000
export const MAX_BATCH_BYTES = 64 * 1024 * 1024

/** What a driver needs of the backend that opened it. */
export interface DriverHost {
  readonly usable: boolean
  turnsOf(queue: string): Turns
  prefixOf(queue: string): string
  queueOf(prefix: string): string
  hintsOf(queue: string): Observable<Hint>
  letGo(driver: RedisDriver): Reply<void>
}

/** One opened queue: each verb is a step of the script that is sent when the turn has ended. */
export class RedisDriver implements QueueDriver {
  readonly #queue: string
  readonly #host: DriverHost
  readonly #turns: Turns
  readonly #closed = new Subject<void>()
  #isOpen = true

  constructor(queue: string, host: DriverHost) {
    this.#queue = queue
    this.#host = host
    this.#turns = host.turnsOf(queue)
  }

  settings(proposed: Partial<SharedSettings>): Reply<SharedSettings> {
    return this.#ask('settings', [JSON.stringify(proposed)], settingsOf)
  }

  configure(changes: Partial<SharedSettings>): Reply<SharedSettings> {
    return this.#ask('configure', [JSON.stringify(changes)], settingsOf)
  }

  enqueue(batch: readonly NewMessage[], token: RequestToken): Reply<readonly EnqueueStatus[]> {
    const error = checkBatch(batch)
    if (error) return refused(error)
    const decode = (row: number[]) => row.map((stored): EnqueueStatus => (stored === 1 ? 'enqueued' : 'duplicate'))
    return this.#ask('enqueue', batchArguments(batch), decode, token)
  }

  claim(request: ClaimRequest): Reply<ClaimReply> {
    const { group, partition, token, max, leaseMs, take, consumer } = request
    const unsupported = group !== undefined ? 'groups' : partition !== undefined ? 'partitions' : undefined
    if (unsupported !== undefined) return refused(new UnsupportedError('redis', unsupported))
    return this.#ask('claim', [max, leaseFor(leaseMs), take ? 1 : 0, consumer], claimReply, token)
  }

  settle(commands: readonly SettleCommand[], token: RequestToken): Reply<readonly SettleResult[]> {
    const refusal = (reply: unknown) => refusalIn(reply, (prefix) => this.#host.queueOf(prefix))
    const args = commandArguments(commands, (queue) => this.#host.prefixOf(queue))
    return this.#ask('settle', args, (row: unknown[]) => row.map((each) => settleResult(each, refusal)), token)
  }

  renew(renewals: readonly Renewal[]): Reply<readonly RenewResult[]> {
    const decode = (row: unknown[][]) =>
      row.map(([state, at], index): RenewResult => {
        const leaseMs = text(state) === 'stale' ? 0 : leaseFor(renewals[index]?.leaseMs ?? 0)
        return { state: text(state) as RenewResult['state'], leaseMs, leaseExpiresAt: whole(at) }
      })
    return this.#ask('renew', renewalArguments(renewals), decode)
  }

  sweep(limit: number): Reply<SweepReply> {
    return this.#ask('sweep', [limit], ([moved, due]: [number, unknown]) => {
      const nextDueMs = whole(due)
      return nextDueMs < 0 ? { moved } : { moved, nextDueMs }
    })
  }

  arrivals(): Observable<Hint> {
    if (!this.#mayEnter()) return throwError(() => this.#closedError())
    return this.#host.hintsOf(this.#queue).pipe(takeUntil(this.#closed))
  }

  stats(): Reply<QueueStats> {
    return this.#ask('stats', [], statsOf)
  }

  list(state: StoredMessage['state'], page: Page): Reply<Paged<StoredMessage>> {
    return this.#page(state, page, (row) => storedMessage(row, state))
  }

  deadLetters(page: Page): Reply<Paged<StoredDeadLetter>> {
    return this.#page('dead', page, storedDeadLetter)
  }

  requeueDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    return this.#ask('requeueDead', [ids.length, ...ids], booleans, token)
  }

  purgeDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    return this.#ask('purgeDead', [ids.length, ...ids], booleans, token)
  }

  purge(states: readonly PurgeState[], limit: number): Reply<number> {
    return this.#ask('purge', [limit, states.length, ...states], whole)
  }

  pause(): Reply<void> {
    return this.#ask('pause', [], () => undefined)
  }

  resume(): Reply<void> {
    return this.#ask('resume', [], () => undefined)
  }

  cancel(id: string): Reply<CancelReply> {
    return this.#ask('cancel', [id], (state: unknown) => text(state) as CancelReply)
  }

  outcome(id: string, watch: boolean): Reply<StoredOutcome> {
    return this.#ask('outcome', [id, watch ? 1 : 0], storedOutcome)
  }

  close(): Reply<void> {
    if (!this.#isOpen) return replied(undefined)
    this.#isOpen = false
    this.#closed.next()
    return this.#host.letGo(this)
  }

  #page<T>(state: string, { after = '', limit }: Page, show: (row: unknown[]) => T): Reply<Paged<T>> {
    return this.#ask('list', [state, after, limit], ([rows, next]: [unknown[][], unknown]) => {
      const items = rows.map(show)
      return text(next) === '' ? { items } : { items, next: text(next) }
    })
  }

  #ask<R, T>(verb: string, args: readonly Argument[], decode: (reply: R) => T, token?: RequestToken): Reply<T> {
    return this.#mayEnter() ? this.#turns.ask(verb, args, decode, token) : refused(this.#closedError())
  }

  #mayEnter(): boolean {
    return this.#isOpen && this.#host.usable
  }

  #closedError(): ClosedError {
    return new ClosedError(this.#host.usable ? `queue ${describeValue(this.#queue)}` : 'the redis backend')
  }
}

function checkBatch(batch: readonly NewMessage[]): Error | undefined {
  if (batch.length > MAX_BATCH) return new LimitError('maxBatch', MAX_BATCH, batch.length)
  if (batch.some(({ partition }) => partition !== undefined)) return new UnsupportedError('redis', 'partitions')
  const bytes = batch.reduce((sum, message) => sum + message.bytes.byteLength, 0)
  return bytes > MAX_BATCH_BYTES ? new LimitError('maxBatchBytes', MAX_BATCH_BYTES, bytes) : undefined
}

function booleans(row: number[]): boolean[] {
  return row.map((each) => each === 1)
}
