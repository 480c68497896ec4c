/**
 * How messages arrive. Each transaction in which something arrives takes the next number of the queue, which is compared
 * and put: so order of arrival is order of commit, and nobody's clock has a say in it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { EnqueueStatus, NewMessage } from '../../driver.js'
import { BackendUnavailableError, LimitError, MillraceError, QueueFullError, UnsupportedError } from '../../errors.js'
import { sizeOf } from '../local/admission.js'
import { Admission } from './admission.js'
import type { Change } from './change.js'
import type { Compare, KeyValue, Op, Result } from './client.js'
import type { Desk } from './desk.js'
import type { Failed, Job } from './lane.js'
import { isDue, maintain, maintainSome, nothingDue } from './maintenance.js'
import { forgetOutlived } from './outcomes.js'
import { MAX_VICTIMS } from './room.js'
import type { Committed } from './session.js'
import type { SessionRecord } from './session-record.js'
import { absent, get, packed } from './txn.js'

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
      const statuses = await this.#add(admission, job.input)
      if (admission.outdated || admission.isUnread) return false
      if (statuses === undefined) break
      if (statuses instanceof QueueFullError && !this.#lastWord) return 'full'
      if (statuses instanceof MillraceError) job.asked.fail(statuses)
      else stored.push({ job, statuses })
    }
    return stored
  }

  /** Undefined where what is stored before it has to be there first: it frees an id, or makes room. */
  async #add(admission: Admission, batch: readonly NewMessage[]) {
    if (admission.drops(batch)) return undefined
    const statuses = await admission.add(batch)
    if (admission.isUnread) await this.#readIds()
    return statuses instanceof QueueFullError && admission.messages.length > 0 ? undefined : statuses
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
    return [get(keys.meta), get(keys.arrivals), ...this.#desk.head.dueOps(), ...ids.map(keyOnly)]
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
    const isTime = isDue(desk.head.dueIn([delayed, expiring] as readonly Result[]))
    if (isTime && this.#losses < 3) await maintainSome(desk)
  }

  /** Which ids of a batch too large to compare are taken; true as long as nothing has arrived since. */
  async #readIds(): Promise<void> {
    const desk = this.#desk
    const ids = this.#jobs.flatMap(({ input }) => input.map(({ id }) => id))
    const { keys } = desk
    const taken: KeyValue[] = []
    // Where arrivals stand is read with the first of them, and nothing may arrive after that.
    let queue = [get(keys.meta), get(keys.arrivals)]
    for (let from = 0; from < ids.length; from += MAX_COMPARED) {
      const some = ids.slice(from, from + MAX_COMPARED).map((id) => keyOnly(`${keys.messages}${id}`))
      const { results } = await desk.read(...queue, ...some)
      taken.push(...results.slice(queue.length).flatMap(({ kvs }) => kvs))
      queue = []
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
