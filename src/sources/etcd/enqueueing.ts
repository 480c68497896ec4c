/**
 * How messages arrive. Each transaction in which something arrives takes the next number of the queue, which is compared
 * and put: so order of arrival is order of commit, and nobody's clock has a say in it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { EnqueueStatus, NewMessage } from '../../driver.js'
import { BackendUnavailableError, LimitError, MillraceError, QueueFullError, UnsupportedError } from '../../errors.js'
import { sizeOf } from '../local/admission.js'
import type { Change } from './change.js'
import type { Compare, KeyValue, Op, Result } from './client.js'
import type { Arrivals, Candidate, Desk, StoredArrivals } from './desk.js'
import { type Entry, encodeMessage, entryFor, entryRow, headerOf } from './entry.js'
import { arrivalText, fixed, INSTANT_DIGITS } from './keys.js'
import type { Failed, Job } from './lane.js'
import { isDue, maintain, maintainSome, nothingDue } from './maintenance.js'
import { oldestReady } from './oldest.js'
import { forgetOutlived } from './outcomes.js'
import { rankOf } from './rank.js'
import { encode } from './record.js'
import type { Committed } from './session.js'
import type { SessionRecord } from './session-record.js'
import { absent, get, modIs, only, packed, put } from './txn.js'

export const MAX_BATCH = 500
export const MAX_BATCH_BYTES = 1_400_000

/** Messages of a transaction whose ids are compared; of a larger one they are read before. */
const MAX_COMPARED = 100
/** What a message takes in a request besides its payload, headers and id. */
const OVERHEAD = 420
const MAX_REQUEST_BYTES = 1_480_000
/** The most operations of one level, where there are few conditions. */
const MOST_GROUPS = 40
/** How often a number is lost to other producers before that is told. */
const MAX_LOSSES = 50

export type EnqueueJob = Job<readonly NewMessage[], readonly EnqueueStatus[]>

/** Stores the batches of all jobs, or of as many of the first as go in one transaction. */
export async function enqueue(desk: Desk, jobs: readonly EnqueueJob[], failed: Failed): Promise<void> {
  const taken = takeTogether(jobs)
  try {
    await new Storing(desk, taken).run()
  } catch (error) {
    for (const job of taken) failed(job, error)
  }
}

/** What is wrong with a batch, whatever the queue holds. */
export function checkBatch(batch: readonly NewMessage[], most = MAX_BATCH): MillraceError | undefined {
  if (batch.length > most) return new LimitError('maxBatch', most, batch.length)
  if (batch.some(({ partition }) => partition !== undefined)) return new UnsupportedError('etcd', 'partitions')
  const bytes = batch.reduce((sum, message) => sum + sizeOf(message), 0)
  if (bytes > MAX_BATCH_BYTES) return new LimitError('maxBatchBytes', MAX_BATCH_BYTES, bytes)
  const request = requestBytes(batch)
  return request > MAX_REQUEST_BYTES ? new LimitError('etcd max-request-bytes', MAX_REQUEST_BYTES, request) : undefined
}

function requestBytes(batch: readonly NewMessage[]): number {
  return batch.reduce((sum, message) => sum + sizeOf(message) + 3 * Buffer.byteLength(message.id) + OVERHEAD, 0)
}

function takeTogether(jobs: readonly EnqueueJob[]): EnqueueJob[] {
  const taken: EnqueueJob[] = []
  let messages = 0
  let bytes = 0
  for (const job of jobs) {
    messages += job.input.length
    bytes += requestBytes(job.input)
    if (taken.length > 0 && (messages > MAX_COMPARED || bytes > MAX_REQUEST_BYTES)) break
    taken.push(job)
  }
  return taken
}

interface Stored {
  readonly job: EnqueueJob
  readonly statuses: EnqueueStatus[]
}

class Storing {
  readonly #desk: Desk
  readonly #jobs: EnqueueJob[]
  /** Ids that are taken, by a message of before. */
  readonly #known = new Set<string>()
  #losses = 0
  /** That there is no room is final. */
  #lastWord = false

  constructor(desk: Desk, jobs: EnqueueJob[]) {
    this.#desk = desk
    this.#jobs = jobs
  }

  async run(): Promise<void> {
    const messages = this.#jobs.reduce((sum, { input }) => sum + input.length, 0)
    for (let maintained = false; ; ) {
      const compareIds = messages <= this.#mostCompared
      if (!compareIds) await this.#readIds()
      const done = await this.#step(compareIds)
      if (done === true) return
      if (done === 'full' && !maintained) {
        // What is past its time takes no room, and neither does what is there already.
        maintained = true
        while ((await maintain(this.#desk)) > 0) {}
        await this.#readIds()
        this.#lastWord = true
        continue
      }
      this.#losses += 1
      if (this.#losses >= MAX_LOSSES) {
        throw new BackendUnavailableError(`other producers of the queue came first ${MAX_LOSSES} times`)
      }
      if (this.#losses > 2) await sleep(Math.random() * Math.min(this.#losses, 10))
    }
  }

  get #mostCompared(): number {
    return this.#desk.meta.settings.limits.whenFull === 'dropOldest' ? MAX_VICTIMS : MAX_COMPARED
  }

  /** Whether all is done; `'full'` where there is no room as long as nothing is done about what is past its time. */
  async #step(compareIds: boolean): Promise<boolean | 'full'> {
    const desk = this.#desk
    const draft = desk.session.record.draft('itself')
    const change = desk.change(draft)
    const admission = new Admission(desk, change, this.#known)
    const stored = await this.#admit(admission)
    if (!Array.isArray(stored)) return stored
    if (admission.messages.length > 0) {
      const outcome = await this.#commit(admission, change, draft, compareIds)
      if (outcome.kind === 'changed') desk.prune()
      if (outcome.kind === 'lost') await this.#outrun(outcome, compareIds ? idKeys(desk, admission) : [])
      if (outcome.kind === 'changed' || outcome.kind === 'lost') return false
      desk.isOutrun = this.#losses > 0
      if (outcome.kind === 'done') {
        desk.session.adopt(draft, outcome.revision)
        admission.applied(outcome.revision)
      }
    }
    for (const { job, statuses } of stored) job.asked.succeed(statuses)
    return true
  }

  /** Adds the batches; those that are refused are told at once. */
  async #admit(admission: Admission): Promise<Stored[] | false | 'full'> {
    const stored: Stored[] = []
    for (const job of this.#jobs.filter(({ asked }) => asked.isOpen)) {
      const statuses = await admission.add(job.input)
      if (admission.outdated) return false
      // What is stored with those before it may be what makes room for it.
      if (statuses instanceof QueueFullError && admission.messages.length > 0) break
      if (statuses instanceof QueueFullError && !this.#lastWord) return 'full'
      if (statuses instanceof MillraceError) job.asked.fail(statuses)
      else stored.push({ job, statuses })
    }
    return stored
  }

  #commit(admission: Admission, change: Change, draft: SessionRecord, compareIds: boolean): Promise<Committed> {
    const desk = this.#desk
    const ids = idKeys(desk, admission)
    const compare = [...admission.compare(), ...(compareIds ? ids.map(absent) : []), ...this.#inOrder()]
    // As many groups as there are conditions cost nothing besides.
    const groups = Math.max(MOST_GROUPS, compare.length)
    const ops = packed([...change.finished(), ...admission.ops(), desk.session.putOf(draft)], groups)
    // A lone producer need not read what another has changed.
    const reads = desk.isOutrun || this.#losses > 0 ? this.#reads(compareIds ? ids : []) : []
    return desk.session.commit({ compare, success: ops, failure: reads })
  }

  /** What {@link #outrun} takes. */
  #reads(ids: readonly string[]): Op[] {
    const { keys } = this.#desk
    return [get(keys.meta), get(keys.arrivals), ...this.#desk.dueOps(), ...ids.map(keyOnly)]
  }

  /** What was due before these arrives before them, if that can be done in a few steps. */
  #inOrder(): Compare[] {
    return this.#losses < 3 ? nothingDue(this.#desk) : []
  }

  async #outrun(lost: Extract<Committed, { kind: 'lost' }>, ids: readonly string[]): Promise<void> {
    const desk = this.#desk
    const reads = this.#reads(ids)
    const { results } = lost.results.length > 0 ? desk.note(reads, lost) : await desk.read(...reads)
    const [, , delayed, expiring, ...taken] = results
    await this.#taken(taken.flatMap(({ kvs }) => kvs))
    const isTime = isDue(desk.dueIn([delayed, expiring] as readonly Result[]))
    if (isTime && this.#losses < 3) await maintainSome(desk)
  }

  /** Which ids of a batch too large to compare are taken; true as long as nothing has arrived since. */
  async #readIds(): Promise<void> {
    const desk = this.#desk
    const ids = this.#jobs.flatMap(({ input }) => input.map(({ id }) => id))
    await desk.read(get(desk.keys.meta), get(desk.keys.arrivals))
    const taken: KeyValue[] = []
    for (let from = 0; from < ids.length; from += MAX_COMPARED) {
      const keys = ids.slice(from, from + MAX_COMPARED).map((id) => keyOnly(`${desk.keys.messages}${id}`))
      const { results } = await desk.read(...keys)
      taken.push(...results.flatMap(({ kvs }) => kvs))
    }
    await this.#taken(taken)
  }

  async #taken(stored: readonly KeyValue[]): Promise<void> {
    if (stored.length === 0) return
    const { keys } = this.#desk
    const ids = stored.map(({ key }) => key.slice(keys.messages.length))
    const forgotten = await forgetOutlived(this.#desk)
    for (const id of ids) if (!forgotten.has(id)) this.#known.add(id)
  }
}

function idKeys({ keys }: Desk, { messages }: Admission): string[] {
  return messages.map(({ id }) => `${keys.messages}${id}`)
}

function keyOnly(key: string): Op {
  return { kind: 'get', key, keysOnly: true }
}

/** Messages that are to be stored in a queue, as part of a change. */
export class Admission {
  /** Those that are stored. */
  readonly messages: NewMessage[] = []
  /** Something has arrived meanwhile: all of this has to be made again. */
  outdated = false
  readonly #desk: Desk
  readonly #arrivals: Arrivals
  readonly #change: Change
  readonly #known: ReadonlySet<string>
  readonly #seen = new Set<string>()
  readonly #ops: Op[] = []
  readonly #victims: Candidate[] = []
  /** Bytes of those. */
  #freed = 0
  #dueAt = 0
  #single: Entry | undefined
  #ready = 0
  #bytes = 0

  constructor(desk: Desk, change: Change, known: ReadonlySet<string>) {
    this.#desk = desk
    this.#arrivals = desk.arrivals
    this.#change = change
    this.#known = known
  }

  /** Adds a batch, all or nothing; an error where it does not fit. */
  async add(batch: readonly NewMessage[], leaving = { length: 0, bytes: 0 }): Promise<EnqueueStatus[] | MillraceError> {
    const error = this.#checkPayloads(batch)
    if (error) return error
    const fresh = new Set<NewMessage>()
    const ids = new Set<string>()
    for (const message of batch) {
      if (this.#known.has(message.id) || this.#seen.has(message.id) || ids.has(message.id)) continue
      ids.add(message.id)
      fresh.add(message)
    }
    const full = await this.#makeRoom([...fresh], leaving)
    if (full) return full
    for (const message of fresh) this.#store(message)
    return batch.map((message) => (fresh.has(message) ? 'enqueued' : 'duplicate'))
  }

  /** What has to hold for all of this. */
  compare(): Compare[] {
    const { keys } = this.#desk
    return [
      modIs(keys.meta, this.#change.meta.mod),
      modIs(keys.arrivals, this.#arrivals.mod),
      ...this.#victims.map(({ key, mod }) => modIs(key, mod)),
    ]
  }

  ops(): Op[] {
    const { keys } = this.#desk
    const turn: StoredArrivals = {
      n: this.#arrivals.turn + 1,
      ...(this.#ready > 0 && { r: this.#ready }),
      ...(this.#dueAt > 0 && { d: this.#dueAt }),
      ...(this.#single && this.messages.length === 1 && { e: entryRow(this.#single) }),
    }
    return [...this.#ops, put(keys.arrivals, encode(turn))]
  }

  /** It was stored at this revision. */
  applied(revision: number): void {
    const desk = this.#desk
    desk.noteArrived({ turn: this.#arrivals.turn + 1, mod: revision })
    if (this.#single && this.messages.length === 1) desk.noteReady(entryRow(this.#single), revision)
    if (desk.bound?.mod !== this.#arrivals.mod) return
    const { length, bytes } = desk.bound
    desk.bound = { mod: revision, length: length + this.messages.length, bytes: bytes + this.#bytes }
  }

  #checkPayloads(batch: readonly NewMessage[]): MillraceError | undefined {
    const { maxPayloadBytes } = this.#desk.meta.settings.limits
    const large = batch.find(({ bytes }) => bytes.byteLength > maxPayloadBytes)
    return large && new LimitError('maxPayloadBytes', maxPayloadBytes, large.bytes.byteLength)
  }

  #store(message: NewMessage): void {
    const { keys } = this.#desk
    const { now, record, meta } = this.#change
    const arrival = arrivalText({ turn: this.#arrivals.turn + 1, index: this.messages.length })
    const delayed = message.delayMs > 0
    const dueAt = now + Math.ceil(message.delayMs)
    const entry = entryFor(message, delayed ? dueAt : now, arrival, now)
    const place = delayed ? `d/${fixed(dueAt, INSTANT_DIGITS)}${arrival}` : `r/${rankOf(entry, meta)}`
    this.#seen.add(message.id)
    this.messages.push(message)
    this.#bytes += entry.size
    record.count('enqueued')
    record.count('bytes', entry.size)
    record.count(delayed ? 'delayed' : 'ready')
    this.#ops.push(put(`${keys.messages}${message.id}`, encodeMessage(headerOf(message, now, place), message.bytes)))
    this.#ops.push(...this.#change.placed(entry, place))
    if (delayed) this.#due(dueAt)
    else {
      this.#ready += 1
      this.#single = entry
    }
    if (entry.expiresAt > 0) this.#due(entry.expiresAt)
  }

  #due(at: number): void {
    if (this.#dueAt === 0 || at < this.#dueAt) this.#dueAt = at
  }

  /** Makes sure that there is room, or drops what is oldest; an error where neither will do. */
  async #makeRoom(fresh: readonly NewMessage[], leaving: Leaving): Promise<MillraceError | undefined> {
    const { limits } = this.#desk.meta.settings
    if (fresh.length === 0 || (limits.maxLength === null && limits.maxBytes === null)) return undefined
    const wanted = { length: fresh.length, bytes: fresh.reduce((sum, message) => sum + sizeOf(message), 0) }
    const desk = this.#desk
    if (
      desk.bound?.mod === desk.arrivals.mod &&
      desk.bound.mod > 0 &&
      this.#exceeded(desk.bound, wanted, leaving) === undefined
    ) {
      return undefined
    }
    const held = await readBound(desk)
    this.outdated ||= desk.arrivals.mod !== this.#arrivals.mod
    const bound = this.#exceeded(held, wanted, leaving)
    if (bound === undefined) return undefined
    const full = new QueueFullError(desk.queue, bound, limits[bound] ?? 0)
    return limits.whenFull === 'reject' ? full : this.#dropOldest(held, wanted, leaving, full)
  }

  #exceeded(held: Leaving, wanted: Leaving, leaving: Leaving): 'maxLength' | 'maxBytes' | undefined {
    const { maxLength, maxBytes } = this.#desk.meta.settings.limits
    const length = held.length + this.messages.length + wanted.length - leaving.length - this.#victims.length
    const bytes = held.bytes + this.#bytes + wanted.bytes - leaving.bytes - this.#freed
    if (maxLength !== null && length > maxLength) return 'maxLength'
    return maxBytes !== null && bytes > maxBytes ? 'maxBytes' : undefined
  }

  async #dropOldest(held: Leaving, wanted: Leaving, leaving: Leaving, full: QueueFullError) {
    let { length, bytes } = leaving
    const victims: Candidate[] = []
    const dropped = new Set(this.#victims.map(({ key }) => key))
    for (const oldest of await oldestReady(this.#desk, MAX_VICTIMS)) {
      if (dropped.has(oldest.key)) continue
      length += 1
      bytes += oldest.entry.size
      victims.push(oldest)
      if (this.#exceeded(held, wanted, { length, bytes }) !== undefined) continue
      for (const victim of victims) this.#drop(victim)
      return undefined
    }
    return full
  }

  #drop(victim: Candidate): void {
    const { key, entry } = victim
    this.#victims.push(victim)
    this.#freed += entry.size
    this.#change.takeOff('ready', key, entry)
    this.#change.record.count('dropped')
    this.#change.forget(entry)
  }
}

/** The most messages that one transaction drops to make room; each is a condition, as is each id that is compared. */
const MAX_VICTIMS = 60

interface Leaving {
  readonly length: number
  readonly bytes: number
}

/**
 * What the queue holds at most from now on, as long as nothing arrives: all that others do meanwhile makes it less. Read in
 * one step together with where arrivals stand.
 */
export async function readBound(desk: Desk): Promise<Leaving> {
  const { keys } = desk
  const { results } = await desk.read(get(keys.arrivals), desk.sessionsOp())
  const sum = desk.countsIn(results[1])
  const bound = { mod: only(results[0])?.mod ?? 0, length: sum.ready + sum.delayed + sum.claimed, bytes: sum.bytes }
  desk.bound = bound
  return bound
}
