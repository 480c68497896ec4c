/**
 * What all that an opened queue does shares: its session, the claims that it holds, and what it knows of the queue.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { LeaseState } from '../../driver.js'
import { BackendUnavailableError } from '../../errors.js'
import { ANY_PRIORITY, type Arrivals, arrivalsAt, NO_ARRIVALS } from './arrivals.js'
import { Change } from './change.js'
import type { EtcdClient, KeyValue, Op, Result, TxnReply } from './client.js'
import type { Entry } from './entry.js'
import type { Seen } from './folding.js'
import { arrivalText, COUNT_DIGITS, endOf, fixed, type Keys, keysOf } from './keys.js'
import { type Holder, Leases } from './leases.js'
import { decodeMeta, type Meta, NO_META } from './meta.js'
import { OutcomeCount } from './outcome-count.js'
import { type Head, QueueHead } from './queue-head.js'
import { OwnSession } from './session.js'
import { type Counts, SessionRecord, sumOf } from './session-record.js'
import { get, only, range } from './txn.js'

const READ_DEADLINE_MS = 2_000
/** Where another member can be asked. */
const SHORT_DEADLINE_MS = 600
const FIRST_BACKOFF_MS = 20
const LONGEST_BACKOFF_MS = 1_000

/** How many answers {@link Desk.noteLook} takes. */
export const LOOK = 5

/** A claim that this session holds. */
export interface Held {
  readonly id: string
  readonly token: string
  readonly page: number
  readonly index: number
  readonly entry: Entry
  /** Where it was claimed, without the name of the queue. */
  readonly place: string
  readonly taken: boolean
  readonly consumer: string
  holder: Holder
  /** By our own monotonic clock the claim lapses then. */
  until: number
}

/** What reads have answered, as it was at a revision. */
export type Answered = Pick<TxnReply, 'results' | 'revision'>

/** A session as it is stored. */
export interface StoredSession {
  readonly name: string
  readonly key: string
  readonly mod: number
  readonly record: SessionRecord
}

const NO_BASE: Pick<StoredSession, 'mod' | 'record'> = { mod: 0, record: SessionRecord.empty() }

export interface DeskHost {
  readonly client: () => EtcdClient
  onTrouble(error: Error): void
  onLease(state: LeaseState): void
  /** The lease of a claim is gone before its time. */
  onClaimLost(id: string): void
  /** Something is to be done by success: see to it. */
  onClaims(): void
}

export class Desk {
  readonly session: OwnSession
  readonly leases: Leases
  readonly claims = new Map<string, Held>()
  readonly outcomes = new OutcomeCount()
  meta: Meta = NO_META
  arrivals = NO_ARRIVALS
  readonly head: QueueHead
  /** What was enqueued last had to be tried again. */
  isOutrun = false
  /** Other queues of the same backend that messages were carried to. */
  readonly visited = new Map<string, Desk>()
  /** How many messages and bytes the queue holds at most, as long as arrivals stand where they stood. */
  bound: { readonly mod: number; readonly length: number; readonly bytes: number } | undefined
  /** What stands for all sessions that are over, as it was when we last looked. */
  base = NO_BASE
  /** Sessions of others, as they were when we last looked. */
  seen: ReadonlyMap<string, Seen> = new Map()
  /** When we last looked for claims whose owner is gone. */
  recoveredAt = Number.NEGATIVE_INFINITY
  /** Claims that found nothing left of what they had seen. */
  lostClaims = 0
  lostClaimAt = Number.NEGATIVE_INFINITY
  /** What part of the claims that were tried of late was lost. */
  lostShare = 0
  #names = 0
  /** The revisions of what is known. */
  #metaAt = 0
  #arrivedAt = 0

  constructor(
    readonly queue: string,
    readonly keys: Keys,
    readonly host: DeskHost,
  ) {
    const name = randomBytes(6).toString('hex')
    this.head = new QueueHead(keys, () => this.meta)
    this.session = new OwnSession(name, {
      client: host.client,
      keys,
      onTrouble: (error) => host.onTrouble(error),
      onPutBack: () => {
        this.#metaAt = this.#arrivedAt = 0
        this.head.reset()
      },
    })
    this.leases = new Leases(
      host.client,
      keys,
      (state) => {
        if (state === 'expired') this.onLeaseGone()
        host.onLease(state)
      },
      (holder) => [...this.claims.values()].some((held) => held.holder === holder),
    )
  }

  /** A change of our own, on a draft of our record. */
  change(draft: SessionRecord): Change {
    return new Change(this.keys, this.meta, draft, this.session.name, fixed(draft.turn, COUNT_DIGITS))
  }

  /** A change of what another session has left, on a draft of its record. */
  changeOf(session: string, draft: SessionRecord): Change {
    this.#names += 1
    const name = `${fixed(draft.turn, COUNT_DIGITS)}${this.session.name}${this.#names.toString(36)}`
    return new Change(this.keys, this.meta, draft, session, name)
  }

  /** Reads in one step, repeats nothing, and takes note of what is said of the queue itself. */
  async read(...ops: Op[]): Promise<TxnReply> {
    const client = this.host.client()
    const deadlineMs = client.members > 1 ? SHORT_DEADLINE_MS : READ_DEADLINE_MS
    const askedAt = this.session.heardAt
    const reply = await client.txn({ compare: [], success: ops, failure: [] }, deadlineMs)
    this.session.heard(reply.revision, askedAt)
    return this.note(ops, reply)
  }

  /** Takes note of what reads have answered of the queue itself. */
  note<R extends Answered>(ops: readonly Op[], reply: R): R {
    for (const [index, op] of ops.entries()) {
      const stored = only(reply.results[index])
      if (op.kind !== 'get') continue
      if (op.key === this.keys.meta) this.noteMeta(stored, reply.revision)
      if (op.key === this.keys.arrivals) this.noteArrivals(stored, reply.revision)
    }
    return reply
  }

  /** Reads what must be known after something was done: asks until it is answered, and says so meanwhile. */
  async patiently<T>(read: () => Promise<T>): Promise<T> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await read()
      } catch (error) {
        if (!(error instanceof BackendUnavailableError) || this.session.closed) throw error
        this.host.onTrouble(error)
        await sleep(Math.min(FIRST_BACKOFF_MS * 2 ** attempt, LONGEST_BACKOFF_MS) * (0.5 + Math.random() / 2))
      }
    }
  }

  /** The queue as it was stored at a revision; where somebody has deleted that, its settings are those that are known. */
  noteMeta(stored: KeyValue | undefined, revision: number): void {
    if (revision < this.#metaAt) return
    this.#metaAt = revision
    if ((stored?.mod ?? 0) === this.meta.mod) return
    this.adoptMeta(stored ? decodeMeta(stored) : { ...this.meta, mod: 0 }, revision)
  }

  /** The queue as it is stored since a revision. */
  adoptMeta(meta: Meta, revision: number): void {
    this.#metaAt = revision
    this.meta = meta
    // By another rule all places are others.
    this.head.reset()
  }

  /** Where arrivals stood at a revision. */
  noteArrivals(stored: KeyValue | undefined, revision: number): void {
    this.noteArrived(arrivalsAt(revision, stored, this.arrivals.back), revision)
  }

  /** Something was ready before: where nobody knows with which priority, it may have been any. */
  noteFront(): void {
    if (this.arrivals.mod === 0) this.arrivals = { ...this.arrivals, back: ANY_PRIORITY }
  }

  /** What {@link sessionsIn} takes. */
  sessionsOp(): Op {
    return range(this.keys.sessions, endOf(this.keys.sessions))
  }

  /** All sessions, with what stands for those that are over. */
  sessionsIn(result: Result | undefined): StoredSession[] {
    const { base, sessions } = this.keys
    const all = (result?.kvs ?? []).map(({ key, mod, value }): StoredSession => {
      return { name: key.slice(sessions.length), key, mod, record: SessionRecord.decode(value) }
    })
    this.base = all.find(({ key }) => key === base) ?? NO_BASE
    return all
  }

  noteBase(stored: KeyValue | undefined): void {
    this.base = stored ? { mod: stored.mod, record: SessionRecord.decode(stored.value) } : NO_BASE
  }

  /** The numbers of the queue, which are those of all sessions. */
  countsIn(result: Result | undefined): Counts {
    return sumOf(this.sessionsIn(result).map(({ record }) => record))
  }

  /** Whether anything of the queue was ever read. */
  get isKnown(): boolean {
    return this.meta.mod > 0 || this.arrivals.mod > 0
  }

  /** Where arrivals stood at a revision. What is older than what is known says nothing. */
  noteArrived(arrivals: Arrivals, revision = arrivals.mod): void {
    if (revision < this.#arrivedAt) return
    this.#arrivedAt = revision
    this.arrivals = arrivals
  }

  noteRace(lost: boolean): void {
    if (lost) this.lostClaimAt = performance.now()
    this.lostShare = 0.9 * this.lostShare + (lost ? 0.1 : 0)
  }

  /** What {@link noteLook} takes. `all`: from where all begins, whatever is known of that. */
  lookOps(limit: number, all = false): Op[] {
    return [get(this.keys.meta), ...this.head.ops(limit, all)]
  }

  /** The queue and its head as they were at a revision; undefined where that has to be looked at again. */
  noteLook([meta, ...head]: readonly Result[], revision: number): Head | undefined {
    this.noteMeta(only(meta), revision)
    return this.head.note(head, revision)
  }

  /** The first ready messages: as many as wanted, or all there are. */
  async readHead(wanted: number, limit: number): Promise<Head> {
    for (;;) {
      const { results, revision } = await this.read(...this.lookOps(limit))
      const head = this.noteLook(results, revision)
      if (head === undefined) continue
      if (head.complete || head.candidates.length >= wanted || head.isCut) return head
      this.head.widen()
    }
  }

  /** When the first of our claims lapses, by our monotonic clock. */
  get lapsesAt(): number {
    let at = Number.POSITIVE_INFINITY
    for (const { until } of this.claims.values()) if (until < at) at = until
    return at
  }

  /** The claim of a token, if it is live. */
  live(id: string, token: string): Held | undefined {
    const held = this.claims.get(token)
    if (held === undefined || held.id !== id || held.until <= performance.now() || !held.holder.isLive) return undefined
    return this.session.record.isLive(held.page, held.index) ? held : undefined
  }

  /** Forgets claims that the record says are not ours any more. */
  prune(): void {
    for (const [token, { page, index }] of this.claims) {
      if (!this.session.record.isLive(page, index)) this.claims.delete(token)
    }
  }

  onLeaseGone(): void {
    for (const held of this.claims.values()) {
      if (held.holder.isLive) continue
      held.until = Math.min(held.until, performance.now())
      this.host.onClaimLost(held.id)
    }
    this.host.onClaims()
  }

  /** Our desk at another queue, with a session of its own there. */
  visit(queue: string): Desk {
    const known = this.visited.get(queue)
    if (known) return known
    const desk = new Desk(queue, keysOf(queue), this.host)
    this.visited.set(queue, desk)
    return desk
  }

  /** Where something stands that arrives with the next transaction. */
  arrival(index: number): string {
    return arrivalText({ turn: this.arrivals.turn + 1, index })
  }
}
