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
import { sizeOf } from '../local/admission.js'
import { refusalIn } from './errors.js'
import {
  batchArguments,
  carriedBy,
  claimReply,
  commandArguments,
  type ListedRow,
  leaseFor,
  numberOf,
  renewalArguments,
  settingsArguments,
  settingsOf,
  settleResult,
  statsOf,
  storedDeadLetter,
  storedMessage,
  storedOutcome,
  text,
} from './protocol.js'
import type { Step, Turns } from './turn.js'

/** A batch is one step of the server, which does nothing else meanwhile. */
export const MAX_BATCH = 10_000
export const MAX_BATCH_BYTES = 64 * 1024 * 1024

/** What a driver needs of the backend that opened it. */
export interface DriverHost {
  readonly usable: boolean
  turnsOf(queue: string): Turns
  prefixOf(queue: string): string
  queueOf(prefix: string): string
  /** Whether a message can go from one queue to another in one step. */
  canReach(from: string, to: string): boolean
  hintsOf(queue: string): Observable<Hint>
  letGo(driver: RedisDriver): Reply<void>
}

/** One opened queue: each verb is a step of the script that is sent when the turn has ended. */
export class RedisDriver implements QueueDriver {
  readonly queue: string
  readonly #host: DriverHost
  readonly #turns: Turns
  readonly #closed = new Subject<void>()
  #isOpen = true

  constructor(queue: string, host: DriverHost) {
    this.queue = queue
    this.#host = host
    this.#turns = host.turnsOf(queue)
  }

  settings(proposed: Partial<SharedSettings>): Reply<SharedSettings> {
    return this.#ask({ verb: 'settings', args: settingsArguments(proposed), decode: settingsOf })
  }

  configure(changes: Partial<SharedSettings>): Reply<SharedSettings> {
    const stored = this.#ask({ verb: 'configure', args: settingsArguments(changes), decode: settingsOf })
    if (changes.ageing !== undefined) stored.then(() => this.#rankOn(), ignore)
    return stored
  }

  enqueue(batch: readonly NewMessage[], token: RequestToken): Reply<readonly EnqueueStatus[]> {
    const bytes = batch.reduce((sum, message) => sum + sizeOf(message), 0)
    const error = checkBatch(batch, bytes)
    if (error) return refused(error)
    const decode = (row: number[] | number) =>
      listed(row, 1).map((stored): EnqueueStatus => (stored === 1 ? 'enqueued' : 'duplicate'))
    return this.#ask({
      verb: 'enqueue',
      args: batchArguments(batch),
      decode,
      token,
      messages: batch.length,
      bytes,
    })
  }

  claim(request: ClaimRequest): Reply<ClaimReply> {
    const { group, partition, token, max, leaseMs, take, consumer, apart = false } = request
    const unsupported = group !== undefined ? 'groups' : partition !== undefined ? 'partitions' : undefined
    if (unsupported !== undefined) return refused(new UnsupportedError('redis', unsupported))
    const granted = leaseFor(leaseMs)
    const decode = (reply: Parameters<typeof claimReply>[0]) => claimReply(reply, granted)
    const args = [max, granted, take ? 1 : 0, consumer]
    return this.#ask({ verb: 'claim', args, decode, token, messages: max, apart })
  }

  settle(commands: readonly SettleCommand[], token: RequestToken): Reply<readonly SettleResult[]> {
    const unreachable = this.#unreachable(commands)
    const sent = unreachable.size === 0 ? commands : commands.filter((command) => !unreachable.has(command))
    const refusal = (reply: unknown) => refusalIn(reply, (prefix) => this.#host.queueOf(prefix))
    const decode = (row: unknown[] | number) => {
      const results = listed<unknown>(row, 'acked').values()
      return commands.map((command): SettleResult => {
        const error = unreachable.get(command)
        return error ? { state: 'refused', error } : settleResult(results.next().value, refusal)
      })
    }
    const args = commandArguments(sent, (queue) => this.#host.prefixOf(queue))
    const others = sent.flatMap(carriedBy).map(({ queue }) => this.#host.prefixOf(queue))
    return this.#ask({ verb: 'settle', args, decode, token, messages: sent.length, others })
  }

  renew(renewals: readonly Renewal[]): Reply<readonly RenewResult[]> {
    const decode = (row: unknown[][]) =>
      row.map(([state, at], index): RenewResult => {
        const leaseMs = text(state) === 'stale' ? 0 : leaseFor(renewals[index]?.leaseMs ?? 0)
        return { state: text(state) as RenewResult['state'], leaseMs, leaseExpiresAt: numberOf(at) }
      })
    return this.#ask({ verb: 'renew', args: renewalArguments(renewals), decode, messages: renewals.length })
  }

  sweep(limit: number): Reply<SweepReply> {
    const decode = ([moved, due]: [number, number]) => (due < 0 ? { moved } : { moved, nextDueMs: due })
    return this.#ask({ verb: 'sweep', args: [limit], decode, messages: limit })
  }

  arrivals(): Observable<Hint> {
    if (!this.#mayEnter()) return throwError(() => this.#closedError())
    return this.#host.hintsOf(this.queue).pipe(takeUntil(this.#closed))
  }

  stats(): Reply<QueueStats> {
    return this.#ask({ verb: 'stats', args: [], decode: statsOf })
  }

  list(state: StoredMessage['state'], page: Page): Reply<Paged<StoredMessage>> {
    return this.#page(state, page, (row) => storedMessage(row, state))
  }

  deadLetters(page: Page): Reply<Paged<StoredDeadLetter>> {
    return this.#page('dead', page, storedDeadLetter)
  }

  requeueDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    return this.#ask({ verb: 'requeueDead', args: [ids.length, ...ids], decode: booleans, token, messages: ids.length })
  }

  purgeDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    return this.#ask({ verb: 'purgeDead', args: [ids.length, ...ids], decode: booleans, token, messages: ids.length })
  }

  purge(states: readonly PurgeState[], limit: number, token: RequestToken): Reply<number> {
    const args = [limit, states.length, ...states]
    return this.#ask({ verb: 'purge', args, decode: numberOf, token, messages: limit })
  }

  pause(): Reply<void> {
    return this.#ask({ verb: 'pause', args: [], decode: () => undefined })
  }

  resume(): Reply<void> {
    return this.#ask({ verb: 'resume', args: [], decode: () => undefined })
  }

  cancel(id: string, token: RequestToken): Reply<CancelReply> {
    return this.#ask({ verb: 'cancel', args: [id], decode: (state: unknown) => text(state) as CancelReply, token })
  }

  outcome(id: string, watch: boolean): Reply<StoredOutcome> {
    return this.#ask({ verb: 'outcome', args: [id, watch ? 1 : 0], decode: storedOutcome })
  }

  close(): Reply<void> {
    if (!this.#isOpen) return replied(undefined)
    this.#isOpen = false
    this.#closed.next()
    return this.#host.letGo(this)
  }

  /** Places are reckoned anew in steps. The first is done, and nobody waits for the rest: any call goes on with them. */
  #rankOn(): void {
    this.#ask({ verb: 'rank', args: [], decode: numberOf }).then((left) => {
      if (left > 0) this.#rankOn()
    }, ignore)
  }

  /** Why commands that carry messages cannot be done in one step: none, but in a cluster. */
  #unreachable(commands: readonly SettleCommand[]): ReadonlyMap<SettleCommand, Error> {
    const errors = new Map<SettleCommand, Error>()
    for (const command of commands) {
      const far = carriedBy(command).find(({ queue }) => !this.#host.canReach(this.queue, queue))
      if (far !== undefined) errors.set(command, this.#tooFar(far.queue))
    }
    return errors
  }

  #tooFar(queue: string): UnsupportedError {
    const both = `queues ${describeValue(this.queue)} and ${describeValue(queue)}`
    const advice = 'give the backend a hashTag, so that a message can go from one to the other in one step'
    return new UnsupportedError('redis', 'forward', `${both} are in different slots of the cluster: ${advice}`)
  }

  #page<T>(state: string, { after = '', limit }: Page, show: (row: ListedRow) => T): Reply<Paged<T>> {
    const decode = ([rows, next]: [ListedRow[], unknown]) => {
      const items = rows.map(show)
      return text(next) === '' ? { items } : { items, next: text(next) }
    }
    return this.#ask({ verb: 'list', args: [state, after, limit], decode, messages: limit })
  }

  #ask<R, T>(step: Step<R, T>): Reply<T> {
    return this.#mayEnter() ? this.#turns.ask(step) : refused(this.#closedError())
  }

  #mayEnter(): boolean {
    return this.#isOpen && this.#host.usable
  }

  #closedError(): ClosedError {
    return new ClosedError(this.#host.usable ? `queue ${describeValue(this.queue)}` : 'the redis backend')
  }
}

function checkBatch(batch: readonly NewMessage[], bytes: number): Error | undefined {
  if (batch.length > MAX_BATCH) return new LimitError('maxBatch', MAX_BATCH, batch.length)
  if (batch.some(({ partition }) => partition !== undefined)) return new UnsupportedError('redis', 'partitions')
  return bytes > MAX_BATCH_BYTES ? new LimitError('maxBatchBytes', MAX_BATCH_BYTES, bytes) : undefined
}

function ignore(): void {}

/** Where all answers of a step are the usual one, there is but their number. */
function listed<T>(row: readonly T[] | number, usual: T): readonly T[] {
  return typeof row === 'number' ? new Array<T>(row).fill(usual) : row
}

function booleans(row: number[]): boolean[] {
  return row.map((each) => each === 1)
}
