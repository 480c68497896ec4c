/**
 * The session of an opened queue: one transaction at a time, each of which writes the session's record and compares that
 * nobody has since.
 *
 * So a transaction that is sent again because its answer was lost, by whomever, does nothing the second time, and can tell
 * from the record that it was carried out. As long as that is not known nothing else is sent.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { BackendUnavailableError, ClosedError } from '../../errors.js'
import type { Compare, EtcdClient, KeyValue, Op, Result, Txn } from './client.js'
import type { Keys } from './keys.js'
import { SessionRecord } from './session-record.js'
import { get, modIs, only, put } from './txn.js'

const FIRST_DEADLINE_MS = 1_000
const LONGEST_DEADLINE_MS = 8_000
const FIRST_BACKOFF_MS = 20
const LONGEST_BACKOFF_MS = 1_000

/** A change of the queue. */
export interface Plan {
  /** What has to hold besides that the session is as we know it. */
  readonly compare: readonly Compare[]
  /** Has to put the session's record, once, on every path. */
  readonly success: readonly Op[]
  /** What is read where something else does not hold. */
  readonly failure: readonly Op[]
}

export type Committed =
  /** `revision` is that of the change. */
  | { readonly kind: 'done'; readonly results: readonly Result[]; readonly revision: number }
  /** It was done before, by a request whose answer was lost. `record` is what it has put, most likely at `revision`. */
  | { readonly kind: 'repeated'; readonly record: SessionRecord; readonly revision: number }
  /** Nothing was done: something else did not hold. The answers to what was read. */
  | { readonly kind: 'lost'; readonly results: readonly Result[]; readonly revision: number }
  /** Nothing was done: another has changed the session's record, which was read again. */
  | { readonly kind: 'changed' }

export interface SessionHost {
  readonly client: () => EtcdClient
  readonly keys: Keys
  /** A transaction is not answered; it goes on being asked for. */
  onTrouble(error: Error): void
  /** The store was put back to what it was before, as from a copy, and counts on from there. */
  onPutBack(): void
}

/** As long as another member can be asked, one is not waited for. */
export function deadlineFor(attempt: number, members: number): number {
  if (members === 1) return Math.min(FIRST_DEADLINE_MS * 2 ** attempt, LONGEST_DEADLINE_MS)
  return Math.min((FIRST_DEADLINE_MS / 2) * 2 ** Math.floor(attempt / members), LONGEST_DEADLINE_MS)
}

export class OwnSession {
  readonly key: string
  record = SessionRecord.empty()
  /** The revision that has put it; 0 while it is not stored. */
  mod = 0
  closed = false
  #heardAt = 0
  /** Transactions that found something changed by others, and had to be made again. */
  lost = 0
  readonly #host: SessionHost
  readonly #closing = new AbortController()

  constructor(
    readonly name: string,
    host: SessionHost,
  ) {
    this.#host = host
    this.key = `${host.keys.sessions}${name}`
  }

  putOf(draft: SessionRecord): Op {
    return put(this.key, draft.encode())
  }

  /** Takes over what was put. */
  adopt(record: SessionRecord, revision: number): void {
    this.record = record
    this.mod = revision
  }

  /** Takes over what is stored, whoever has put it. */
  adoptStored(stored: KeyValue | undefined): void {
    if (stored === undefined) this.adopt(SessionRecord.empty(this.record.turn), 0)
    else this.adopt(SessionRecord.decode(stored.value), stored.mod)
  }

  /** Stops asking for what is not answered. */
  close(): void {
    this.closed = true
    this.#closing.abort()
  }

  async commit(plan: Plan): Promise<Committed> {
    const txn = {
      compare: [modIs(this.key, this.mod), ...plan.compare],
      success: plan.success,
      failure: [get(this.key), ...plan.failure],
    }
    for (let attempt = 0; ; attempt += 1) {
      if (this.closed) throw new ClosedError('the queue')
      const outcome = await this.#try(txn, attempt).catch((error) => this.#doubted(error, attempt))
      if (outcome) return outcome
      await this.#pause(attempt)
    }
  }

  /** The revision of the latest answer. What is asked after it is answered at that revision or later. */
  get heardAt(): number {
    return this.#heardAt
  }

  /** The store has answered, at a revision, what was asked after another. */
  heard(revision: number, askedAt: number): void {
    if (revision < askedAt) {
      this.#heardAt = revision
      this.#host.onPutBack()
    } else if (revision > this.#heardAt) this.#heardAt = revision
  }

  async #try(txn: Txn, attempt: number): Promise<Committed> {
    const client = this.#host.client()
    const askedAt = this.#heardAt
    const reply = await client.txn(txn, deadlineFor(attempt, client.members))
    this.heard(reply.revision, askedAt)
    if (reply.succeeded) return { kind: 'done', results: reply.results, revision: reply.revision }
    const [stored, ...results] = reply.results
    return this.#failed(only(stored), results, reply.revision)
  }

  /** What is to be made of an error: undefined where it has to be asked for again. */
  async #doubted(error: unknown, attempt: number): Promise<Committed | undefined> {
    if (error instanceof BackendUnavailableError) {
      this.#host.onTrouble(error)
      return undefined
    }
    const before = attempt > 0 ? await this.#wasApplied() : undefined
    if (before === undefined) throw error
    return before
  }

  /** Refused now, it may have been carried out when it was sent before. */
  async #wasApplied(): Promise<Committed | undefined> {
    const { results } = await this.#host
      .client()
      .txn({ compare: [], success: [get(this.key)], failure: [] }, LONGEST_DEADLINE_MS)
    const stored = only(results[0])
    const outcome = stored && stored.mod !== this.mod ? this.#failed(stored, [], stored.mod) : undefined
    return outcome?.kind === 'repeated' ? outcome : undefined
  }

  #failed(stored: KeyValue | undefined, results: readonly Result[], revision: number): Committed {
    const mod = stored?.mod ?? 0
    if (mod === this.mod) {
      this.lost += 1
      return { kind: 'lost', results, revision }
    }
    const { turn } = this.record
    // Where there is none, another has counted it in with the base, after a long silence.
    this.adoptStored(stored)
    if (this.record.turn !== turn + 1) return { kind: 'changed' }
    return { kind: 'repeated', record: this.record, revision: this.mod }
  }

  async #pause(attempt: number): Promise<void> {
    const fullMs = Math.min(FIRST_BACKOFF_MS * 2 ** attempt, LONGEST_BACKOFF_MS)
    await sleep(fullMs * (0.5 + Math.random() / 2), undefined, { signal: this.#closing.signal, ref: false }).catch(
      () => {},
    )
  }
}
