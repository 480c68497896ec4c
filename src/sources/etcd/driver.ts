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
import { BackendUnavailableError, ClosedError, describeValue, UnsupportedError } from '../../errors.js'
import { carries } from '../local/settle-results.js'
import { adoptSettings, cancel, configure, purge, purgeDead, requeueDead, setPaused } from './administration.js'
import { settleCarrying } from './carrying.js'
import { type ConsumeJob, consume } from './claiming.js'
import type { EtcdClient } from './client.js'
import { Desk, LOOK } from './desk.js'
import { checkBatch, type EnqueueJob, enqueue } from './enqueueing.js'
import { isOutOfSpace } from './errors.js'
import { find, outcomeIn } from './finding.js'
import { foldOwn } from './folding.js'
import { Hints } from './hints.js'
import { keysOf } from './keys.js'
import { type Job, Lane, type Together } from './lane.js'
import { listClaimed, listDead, listPlaced } from './listing.js'
import { isDue, lapseOwn, maintain, maintainSome } from './maintenance.js'
import { endsOp, forgetOutlived, trimOutcomes } from './outcomes.js'
import { reckonSome } from './reckoning.js'
import { ownersOps, recoverFrom, recoverOthers } from './recovery.js'
import { type RenewInput, renew } from './renewing.js'
import { statsOf } from './stats.js'
import { now } from './time.js'
import { TokenBook } from './tokens.js'

/** What a driver needs of the backend that opened it. */
export interface DriverHost {
  readonly usable: boolean
  readonly client: () => EtcdClient
  letGo(driver: EtcdDriver): void
}

type Solo = () => Promise<unknown>

/** Done by itself. */
const SOLO = 'solo'
const isSolo = (kind: string) => kind === SOLO
/** More than go in one transaction, or in the few that a turn takes. */
const MOST_JOBS = 1_000
const CONSUMING: Together = { takes: ['settle', 'claim'], most: MOST_JOBS, until: isSolo }

const TOGETHER: Readonly<Record<string, Together>> = {
  // A message may need the room that a settlement before it makes.
  enqueue: { takes: ['enqueue'], most: MOST_JOBS, until: (kind) => isSolo(kind) || kind === 'settle' },
  settle: CONSUMING,
  claim: CONSUMING,
  renew: { takes: ['renew'], most: MOST_JOBS, until: isSolo },
}

/** One opened queue: a session of its own, which does one thing at a time. */
export class EtcdDriver implements QueueDriver {
  readonly queue: string
  readonly #host: DriverHost
  readonly #desk: Desk
  readonly #hints: Hints
  readonly #lane: Lane
  readonly #closed = new Subject<void>()
  #isOpen = true
  #closing: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #timerAt = Number.POSITIVE_INFINITY

  constructor(queue: string, host: DriverHost) {
    this.queue = queue
    this.#host = host
    const keys = keysOf(queue)
    this.#lane = new Lane(
      {
        enqueue: (jobs, failed) => enqueue(this.#desk, jobs as unknown as EnqueueJob[], failed),
        claim: (jobs) => this.#consume(jobs as unknown as ConsumeJob[]),
        settle: (jobs) => this.#consume(jobs as unknown as ConsumeJob[]),
        renew: (jobs) => renew(this.#desk, jobs as unknown as Job<RenewInput, readonly RenewResult[]>[]),
        [SOLO]: (jobs) => this.#alone(jobs as unknown as Job<Solo, unknown>[]),
      },
      TOGETHER,
      new TokenBook(),
    )
    this.#desk = new Desk(queue, keys, {
      client: host.client,
      onTrouble: (error) => this.#lane.trouble(error),
      onLease: (state) => this.#hints.tell({ kind: 'lease', state }),
      // Whoever holds it asks, and hears that it is stale.
      onClaimLost: (id) => this.#hints.tell({ kind: 'cancel', id }),
      onClaims: () => this.#watchClaims(),
    })
    this.#hints = new Hints({
      client: host.client,
      keys,
      onDue: (at) => this.#desk.head.noteDue(at),
      onArrived: (arrivals) => this.#desk.noteArrived(arrivals),
      onReady: (entry, mod) => this.#desk.head.noteReady(entry, mod),
      onMarkerGone: (lease) => this.#markerGone(lease),
      onMetaChanged: ({ type, key, value, mod }) =>
        this.#desk.noteMeta(type === 'put' ? { key, value, mod, create: mod } : undefined, mod),
    })
  }

  /** How often something had to be done again because others were faster: claims, and transactions. */
  get losses(): { readonly claims: number; readonly transactions: number } {
    return { claims: this.#desk.lostClaims, transactions: this.#desk.session.lost }
  }

  settings(proposed: Partial<SharedSettings>): Reply<SharedSettings> {
    return this.#run(() => adoptSettings(this.#desk, proposed))
  }

  configure(changes: Partial<SharedSettings>): Reply<SharedSettings> {
    return this.#configure(changes)
  }

  /** Places are reckoned a few at a time: what else is asked for meanwhile goes in between. */
  async #configure(changes: Partial<SharedSettings>): Promise<SharedSettings> {
    const stored = await this.#alonely(async () => {
      const settings = await configure(this.#desk, changes)
      await trimOutcomes(this.#desk)
      return settings
    })
    while (changes.ageing !== undefined && (await this.#alonely(() => reckonSome(this.#desk))) !== 0) {}
    return stored
  }

  enqueue(batch: readonly NewMessage[], token: RequestToken): Reply<readonly EnqueueStatus[]> {
    const error = checkBatch(batch)
    if (error) return refused(error)
    return this.#ask('enqueue', batch, token)
  }

  claim(request: ClaimRequest): Reply<ClaimReply> {
    const { group, partition, token } = request
    const unsupported = group !== undefined ? 'groups' : partition !== undefined ? 'partitions' : undefined
    if (unsupported !== undefined) return refused(new UnsupportedError('etcd', unsupported))
    return this.#ask('claim', request, token)
  }

  settle(commands: readonly SettleCommand[], token: RequestToken): Reply<readonly SettleResult[]> {
    const carrying = commands.some((command) => 'carry' in command && carries(command))
    if (carrying) return this.#alonely(() => settleCarrying(this.#desk, commands), token)
    return this.#ask('settle', { commands }, token)
  }

  renew(renewals: readonly Renewal[]): Reply<readonly RenewResult[]> {
    return this.#ask('renew', renewals)
  }

  sweep(limit: number): Reply<SweepReply> {
    return this.#alonely(() => this.#sweep(limit))
  }

  arrivals(): Observable<Hint> {
    if (!this.#mayEnter()) return throwError(() => this.#closedError())
    return this.#hints.stream.pipe(takeUntil(this.#closed))
  }

  stats(): Reply<QueueStats> {
    const doDue = () => this.#alonely(() => maintainSome(this.#desk))
    return this.#run(() => statsOf(this.#desk, doDue))
  }

  list(state: StoredMessage['state'], page: Page): Reply<Paged<StoredMessage>> {
    return this.#upToDate(() =>
      state === 'claimed' ? listClaimed(this.#desk, page) : listPlaced(this.#desk, state, page),
    )
  }

  deadLetters(page: Page): Reply<Paged<StoredDeadLetter>> {
    return this.#upToDate(() => listDead(this.#desk, page))
  }

  requeueDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    return this.#alonely(() => requeueDead(this.#desk, ids), token)
  }

  purgeDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]> {
    return this.#alonely(() => purgeDead(this.#desk, ids), token)
  }

  purge(states: readonly PurgeState[], limit: number, token: RequestToken): Reply<number> {
    return this.#alonely(() => purge(this.#desk, states, limit), token)
  }

  pause(): Reply<void> {
    return this.#run(() => setPaused(this.#desk, true))
  }

  resume(): Reply<void> {
    return this.#run(() => setPaused(this.#desk, false))
  }

  cancel(id: string, token: RequestToken): Reply<CancelReply> {
    return this.#alonely(() => cancel(this.#desk, id), token)
  }

  outcome(id: string, watch: boolean): Reply<StoredOutcome> {
    return this.#upToDate(async () => {
      if (watch) await this.#hints.watchEnd(id)
      const found = await find(this.#desk, id)
      const outcome = outcomeIn(found)
      if (outcome.state !== 'pending') this.#hints.forgetEnd(id)
      if (found.state !== 'ended') return outcome
      const forgotten = await this.#ask<Solo, Set<string>>(SOLO, () => forgetOutlived(this.#desk))
      return forgotten.has(id) ? { state: 'unknown' } : outcome
    })
  }

  close(): Reply<void> {
    if (!this.#isOpen) return this.#closing ?? replied(undefined)
    this.#isOpen = false
    this.#closed.next()
    this.#hints.close()
    clearTimeout(this.#timer)
    this.#closing = this.#leave()
    return this.#closing
  }

  /** What is left is over: claims lapse at once, numbers go to the base, leases are let go. All of it in bounded time. */
  async #leave(): Promise<void> {
    const bound = new Promise<void>((resolve) => {
      setTimeout(resolve, CLOSE_MS).unref()
    })
    const left = this.#lane.idle().then(async () => {
      for (const held of this.#desk.claims.values()) held.until = 0
      await lapseOwn(this.#desk)
      for (const desk of [this.#desk, ...this.#desk.visited.values()]) await foldOwn(desk)
    })
    await Promise.race([left.catch(() => {}), bound])
    this.#desk.session.close()
    this.#lane.close(this.#closedError())
    await Promise.race([this.#desk.leases.close(), bound])
    this.#host.letGo(this)
  }

  async #consume(jobs: readonly ConsumeJob[]): Promise<void> {
    try {
      await this.#lapse()
      await consume(this.#desk, jobs)
      await trimOutcomes(this.#desk)
    } catch (error) {
      // Consumers can wait for room; only who brings more is refused.
      throw isOutOfSpace(error) ? new BackendUnavailableError((error as Error).message, { cause: error }) : error
    }
  }

  async #alone(jobs: readonly Job<Solo, unknown>[]): Promise<void> {
    const [job] = jobs
    if (job) job.asked.succeed(await job.input())
  }

  async #sweep(limit: number): Promise<SweepReply> {
    const desk = this.#desk
    let moved = await this.#lapse()
    const { results, revision } = await desk.read(...desk.lookOps(1), endsOp(desk), ...ownersOps(desk))
    const seen = desk.noteLook(results, revision) ?? (await desk.readHead(0, 1))
    moved += await recoverFrom(desk, results.slice(LOOK + 1))
    while (moved < limit && (moved > 0 || isDue(seen.dueAt))) {
      const some = await maintain(desk)
      if (some === 0) break
      moved += some
    }
    if (results[LOOK]?.kvs.length) await forgetOutlived(desk)
    const head = moved > 0 ? await desk.readHead(0, 1) : seen
    const due = [...(head.dueAt > 0 ? [head.dueAt - now()] : []), this.#desk.lapsesAt - performance.now()]
    const next = Math.min(...due)
    return Number.isFinite(next) ? { moved, nextDueMs: Math.max(0, next) } : { moved }
  }

  async #lapse(): Promise<number> {
    const { lapsesAt } = this.#desk
    if (lapsesAt > performance.now()) return 0
    return lapseOwn(this.#desk)
  }

  /** Sees to it that claims lapse in time which nobody renews; not before an instant where that has just failed. */
  #watchClaims(from = 0): void {
    const at = Math.max(from, this.#desk.lapsesAt)
    if (at === Number.POSITIVE_INFINITY || (this.#timer && this.#timerAt <= at) || !this.#isOpen) return
    clearTimeout(this.#timer)
    this.#timerAt = at
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined
        this.#ask<Solo, unknown>(SOLO, () => this.#lapse()).then(
          () => this.#watchClaims(),
          () => this.#watchClaims(performance.now() + LAPSE_AGAIN_MS),
        )
      },
      Math.min(Math.max(1, at - performance.now()), LONGEST_TIMER_MS),
    )
    this.#timer.unref()
  }

  #markerGone(lease: string): void {
    const held = this.#desk.leases.find(lease)
    if (held) return this.#desk.leases.gone(held)
    // All who watch see it; one of them is first.
    setTimeout(() => {
      if (!this.#mayEnter()) return
      this.#ask<Solo, unknown>(SOLO, () => recoverOthers(this.#desk)).catch(() => {})
    }, Math.random() * RECOVERY_SPREAD_MS).unref()
  }

  #ask<I, O>(kind: string, input: I, token?: RequestToken): Promise<O> {
    return this.#mayEnter() ? this.#lane.ask<I, O>(kind, input, token) : Promise.reject(this.#closedError())
  }

  /** Work that is done by itself. */
  #alonely<O>(work: () => Promise<O>, token?: RequestToken): Promise<O> {
    return this.#ask<Solo, O>(SOLO, work, token)
  }

  /** Work that need not wait its turn. */
  #run<O>(work: () => Promise<O>): Promise<O> {
    return this.#mayEnter() ? work() : Promise.reject(this.#closedError())
  }

  /** Reads after what is due was done. */
  #upToDate<O>(work: () => Promise<O>): Promise<O> {
    return this.#run(async () => {
      const { results } = await this.#desk.read(...this.#desk.head.dueOps())
      if (isDue(this.#desk.head.dueIn(results))) await this.#alonely(() => maintainSome(this.#desk))
      return work()
    })
  }

  #mayEnter(): boolean {
    return this.#isOpen && this.#host.usable
  }

  #closedError(): ClosedError {
    return new ClosedError(this.#host.usable ? `queue ${describeValue(this.queue)}` : 'the etcd backend')
  }
}

/** How long letting go may take: less than the engine waits for it. */
const CLOSE_MS = 800
const LONGEST_TIMER_MS = 2 ** 31 - 1
const RECOVERY_SPREAD_MS = 60
/** A store that refuses to let claims lapse is asked again so much later. */
const LAPSE_AGAIN_MS = 1_000
