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
import { ClosedError, describeValue, UnsupportedError } from '../../errors.js'
import type { Session } from '../local/sessions.js'
import { admit, makeRoom, planAdmission } from './admission.js'
import { claim, grantable, withNextDue } from './claiming.js'
import { cancelMessage, findDead, outcomeOf, purge, purgeStates, statsOf } from './inspection.js'
import { listDeadLetters, listMessages } from './listing.js'
import { MAINTENANCE_STEP, maintain } from './maintenance.js'
import { notesOf } from './message.js'
import { type FindStore, settle } from './settling.js'
import type { QueueStore } from './store.js'

/** What a driver needs of the backend that opened it. */
export interface DriverHost {
  /** False once the backend is closed. */
  readonly usable: boolean
  readonly storeOf: FindStore
  letGo(driver: MemoryDriver): void
}

/**
 * One opened queue. Drivers of one name share a store.
 *
 * Each verb reads the clock, does what has become due, does its work on the store, and then, when the store is whole
 * again, tells the hints.
 */
export class MemoryDriver implements QueueDriver {
  readonly #store: QueueStore
  readonly #host: DriverHost
  readonly #closed = new Subject<void>()
  readonly #sessionNames = new Set<string>()
  #session: Session | undefined
  #isOpen = true
  /** Queues that a settlement has looked at because it carries messages for them. */
  #visited: QueueStore[] = []

  constructor(store: QueueStore, host: DriverHost) {
    this.#store = store
    this.#host = host
  }

  settings(proposed: Partial<SharedSettings>): Reply<SharedSettings> {
    if (!this.#enter()) return this.#refuse()
    const store = this.#store
    store.adoptSettings(proposed)
    return this.#leave(store.settings)
  }

  configure(changes: Partial<SharedSettings>): Reply<SharedSettings> {
    if (!this.#enter()) return this.#refuse()
    const store = this.#store
    store.applySettings({ ...store.settings, ...changes })
    store.nameSettings(changes)
    store.hints.ready()
    return this.#leave(store.settings)
  }

  enqueue(batch: readonly NewMessage[], token: RequestToken): Reply<readonly EnqueueStatus[]> {
    if (!this.#enter()) return this.#refuse()
    const repeat = this.#recall(token)
    if (repeat !== undefined) return repeat
    const plan = planAdmission(this.#store, batch)
    if (plan instanceof Error) return this.#conclude(token, refused(plan))
    return this.#conclude(token, replied(admit(this.#store, batch, plan)))
  }

  claim(request: ClaimRequest): Reply<ClaimReply> {
    if (!this.#enter()) return this.#refuse()
    const repeat = this.#recall(request.token)
    if (repeat !== undefined) return repeat
    const unsupported =
      request.group !== undefined ? 'groups' : request.partition !== undefined ? 'partitions' : undefined
    if (unsupported !== undefined) return refused(new UnsupportedError('memory', unsupported))
    return this.#conclude(request.token, replied(claim(this.#store, request)))
  }

  settle(commands: readonly SettleCommand[], token: RequestToken): Reply<readonly SettleResult[]> {
    if (!this.#enter()) return this.#refuse()
    const repeat = this.#recall(token)
    if (repeat !== undefined) return repeat
    const results = new Array<SettleResult>(commands.length)
    for (let index = 0; index < commands.length; index += 1) {
      results[index] = settle(this.#store, commands[index] as SettleCommand, this.#visit)
    }
    return this.#conclude(token, replied(results))
  }

  renew(renewals: readonly Renewal[]): Reply<readonly RenewResult[]> {
    if (!this.#enter()) return this.#refuse()
    return this.#leave(renewals.map((renewal) => renew(this.#store, renewal)))
  }

  sweep(limit: number): Reply<SweepReply> {
    if (!this.#mayEnter()) return this.#refuse()
    this.#store.clock.read()
    const moved = maintain(this.#store, limit)
    return this.#leave(withNextDue<{ moved: number; nextDueMs?: number }>({ moved }, this.#store))
  }

  arrivals(): Observable<Hint> {
    if (!this.#mayEnter()) return throwError(() => this.#closedError())
    return this.#store.hints.stream.pipe(takeUntil(this.#closed))
  }

  stats(): Reply<QueueStats> {
    if (!this.#enter()) return this.#refuse()
    return this.#leave(statsOf(this.#store))
  }

  list(state: StoredMessage['state'], page: Page): Reply<Paged<StoredMessage>> {
    if (!this.#enter()) return this.#refuse()
    return this.#leave(listMessages(this.#store, state, page))
  }

  deadLetters(page: Page): Reply<Paged<StoredDeadLetter>> {
    if (!this.#enter()) return this.#refuse()
    return this.#leave(listDeadLetters(this.#store, page))
  }

  requeueDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    if (!this.#enter()) return this.#refuse()
    return this.#recall(token) ?? this.#conclude(token, reviveAll(this.#store, ids))
  }

  purgeDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    if (!this.#enter()) return this.#refuse()
    return this.#recall(token) ?? this.#conclude(token, replied(ids.map((id) => purgeDead(this.#store, id))))
  }

  purge(states: readonly PurgeState[], limit: number, token: RequestToken): Reply<number> {
    if (!this.#enter()) return this.#refuse()
    return this.#recall(token) ?? this.#conclude(token, replied(purgeStates(this.#store, states, limit)))
  }

  pause(): Reply<void> {
    if (!this.#enter()) return this.#refuse()
    this.#store.paused = true
    return this.#leave(undefined)
  }

  resume(): Reply<void> {
    if (!this.#enter()) return this.#refuse()
    this.#store.paused = false
    this.#store.hints.ready()
    return this.#leave(undefined)
  }

  cancel(id: string, token: RequestToken): Reply<CancelReply> {
    if (!this.#enter()) return this.#refuse()
    return this.#recall(token) ?? this.#conclude(token, replied(cancelMessage(this.#store, id)))
  }

  outcome(id: string, watch: boolean): Reply<StoredOutcome> {
    if (!this.#enter()) return this.#refuse()
    return this.#leave(outcomeOf(this.#store, id, watch))
  }

  close(): Reply<void> {
    if (this.#isOpen) {
      this.#isOpen = false
      this.#store.sessions.close(this.#sessionNames)
      this.#host.letGo(this)
      this.#closed.next()
    }
    return replied(undefined)
  }

  readonly #visit: FindStore = (queue) => {
    const store = this.#host.storeOf(queue)
    this.#visited.push(store)
    return store
  }

  #mayEnter(): boolean {
    return this.#isOpen && this.#host.usable
  }

  /** Begins a verb: fixes its instant and does what has become due. False if the driver is closed. */
  #enter(): boolean {
    if (!this.#mayEnter()) return false
    this.#store.clock.read()
    maintain(this.#store, MAINTENANCE_STEP)
    return true
  }

  /** Ends a verb: the store is whole again, so hints may be told. */
  #leave<T>(value: T): Reply<T> {
    this.#tell()
    return replied(value)
  }

  #refuse(): Reply<never> {
    return refused(this.#closedError())
  }

  #closedError(): ClosedError {
    return new ClosedError(this.#host.usable ? `queue ${describeValue(this.#store.name)}` : 'the memory backend')
  }

  /** The first answer to a request, if it is a repeat. */
  #recall(token: RequestToken): Reply<never> | undefined {
    const { now } = this.#store.clock
    const session = this.#sessionOf(token.session)
    session.heardAt = now
    this.#store.sessions.inspectOne(now)
    return session.recall(token)
  }

  /** Ends a verb that may be asked for again. The answer is kept before hints are told, which may lead to a repeat. */
  #conclude<T>(token: RequestToken, reply: Reply<T>): Reply<T> {
    this.#sessionOf(token.session).remember(token.seq, reply)
    this.#tell()
    return reply
  }

  #sessionOf(name: string): Session {
    if (this.#session?.name === name) return this.#session
    this.#sessionNames.add(name)
    this.#session = this.#store.sessions.open(name)
    return this.#session
  }

  #tell(): void {
    const visited = this.#visited
    if (visited.length > 0) this.#visited = []
    this.#store.hints.flush()
    for (const store of visited) store.hints.flush()
  }
}

const STALE_RENEWAL: RenewResult = { state: 'stale', leaseMs: 0, leaseExpiresAt: 0 }

function renew(store: QueueStore, renewal: Renewal): RenewResult {
  const message = store.liveClaim(renewal.id, renewal.token)
  if (message === undefined) return STALE_RENEWAL
  const leaseMs = grantable(renewal.leaseMs)
  store.sessions.noteLease(leaseMs)
  store.renew(message, leaseMs)
  if (renewal.progress !== undefined) notesOf(message).progress = renewal.progress
  const state = message.cancelRequested ? 'cancelled' : 'renewed'
  return { state, leaseMs, leaseExpiresAt: store.clock.shown(message.instant) }
}

/** Brings all dead letters of these ids back, or none if there is no room for all. */
function reviveAll(store: QueueStore, ids: readonly string[]): Reply<readonly boolean[]> {
  const found = ids.map((id) => findDead(store, id))
  const dead = new Set(found.filter((message) => message !== undefined))
  let bytes = 0
  for (const message of dead) bytes += message.size
  const error = makeRoom(store, dead.size, bytes)
  if (error !== undefined) return refused(error)
  for (const message of dead) store.revive(message)
  return replied(found.map((message, index) => message !== undefined && ids.indexOf(message.id) === index))
}

function purgeDead(store: QueueStore, id: string): boolean {
  const message = findDead(store, id)
  if (message !== undefined) purge(store, message)
  return message !== undefined
}
