/**
 * Settlements that carry messages for other queues: one transaction over the keys of all of them.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { NewMessage, SettleCommand, SettleResult } from '../../driver.js'
import { BackendUnavailableError, LimitError, MillraceError, QueueFullError } from '../../errors.js'
import { byQueue } from '../local/admission.js'
import { carries, settled } from '../local/settle-results.js'
import { Admission } from './admission.js'
import type { Change } from './change.js'
import type { Compare, Op } from './client.js'
import type { Answered, Desk, Held } from './desk.js'
import { checkBatch } from './enqueueing.js'
import { maintain } from './maintenance.js'
import { forgetOutlived, noteEnded } from './outcomes.js'
import { settleOne } from './settling.js'
import { absent, get, modIs, nested, only, packed } from './txn.js'

const MAX_LOSSES = 50
/** The most messages that one settlement carries to one queue: their ids are compared. */
const MAX_CARRIED = 60
/** The most conditions and operations along one path through a transaction. */
const MAX_TXN_OPS = 128
/** So many transactions inside of one share its operations. */
const GROUPS = 20

/** Carries out commands one after the other. */
export async function settleCarrying(desk: Desk, commands: readonly SettleCommand[]): Promise<SettleResult[]> {
  const results: SettleResult[] = []
  for (const command of commands) results.push(await carryOut(desk, command))
  return results
}

/** What was carried out before it has been: so a store that does not answer is asked until it does, and a refusal is its own. */
async function carryOut(desk: Desk, command: SettleCommand): Promise<SettleResult> {
  try {
    return await desk.patiently(() => new Carrying(desk, command).run())
  } catch (error) {
    if (error instanceof BackendUnavailableError || !(error instanceof MillraceError)) throw error
    return { state: 'refused', error }
  }
}

interface Parcel {
  readonly to: Desk
  readonly change: Change
  readonly admission: Admission
}

/** What parcels come to in a transaction. */
interface Carried {
  readonly compare: readonly Compare[]
  readonly ops: readonly Op[]
  /** For each parcel what is read where something does not hold. */
  readonly reads: readonly (readonly Op[])[]
}

/** How much the server counts along the longest path: conditions, ours on the session among them, and operations. */
function widthOf({ compare, ops, reads }: Carried): number {
  // Of our own there are some besides.
  const group = Math.ceil(ops.length / GROUPS) + 1
  return 1 + compare.length + Math.max(group, ...reads.map(({ length }) => length))
}

class Carrying {
  readonly #desk: Desk
  readonly #command: SettleCommand
  readonly #batches: ReadonlyMap<string, NewMessage[]>
  readonly #known = new Map<string, Set<string>>()
  readonly #maintained = new Set<string>()

  constructor(desk: Desk, command: SettleCommand) {
    this.#desk = desk
    this.#command = command
    this.#batches = byQueue('carry' in command && carries(command) ? (command.carry ?? []) : [])
  }

  async run(): Promise<SettleResult> {
    const error = this.#checkBatches()
    if (error) return { state: 'refused', error }
    for (let losses = 0; losses < MAX_LOSSES; losses += 1) {
      const result = await this.#step()
      if (result) return result
      if (losses > 1) await sleep(Math.random() * Math.min(losses, 10))
    }
    throw new BackendUnavailableError(`others have changed the same queues ${MAX_LOSSES} times`)
  }

  /** What is wrong with what is carried, to one queue or to all together. */
  #checkBatches(): MillraceError | undefined {
    const batches = [...this.#batches.values()]
    for (const batch of batches) {
      const error = checkBatch(batch, MAX_CARRIED)
      if (error) return error
    }
    return checkBatch(batches.flat(), Number.POSITIVE_INFINITY)
  }

  /** The result, or undefined where it has to be tried again. */
  async #step(): Promise<SettleResult | undefined> {
    const desk = this.#desk
    const draft = desk.session.record.draft('itself')
    const change = desk.change(draft)
    const held = desk.live(this.#command.id, this.#command.token)
    if (held === undefined) return settled.stale
    const isCancelled = this.#command.kind !== 'ack' && draft.isCancelRequested(held.page, held.index)
    const packs = isCancelled || this.#batches.size === 0 ? [] : await this.#pack(change, held)
    if (packs === undefined) return undefined
    if (packs instanceof Error) return { state: 'refused', error: packs }
    const carried = this.#carried(packs)
    const width = widthOf(carried)
    if (width > MAX_TXN_OPS) return { state: 'refused', error: new LimitError('etcd max-txn-ops', MAX_TXN_OPS, width) }
    const result = packs.length === 0 ? settleOne(desk, change, this.#command) : this.#end(change, held)
    const isDone = await this.#commit(change, packs, carried)
    if (!isDone) return undefined
    desk.claims.delete(held.token)
    return result
  }

  /** False where nothing was done, and something has to be read again, which was. */
  async #commit(change: Change, packs: readonly Parcel[], { compare, ops, reads }: Carried): Promise<boolean> {
    const desk = this.#desk
    const draft = change.record
    const outcome = await desk.session.commit({
      compare,
      success: packed([...change.finished(), desk.session.putOf(draft), ...ops], GROUPS),
      failure: reads.map((some) => nested([], some)),
    })
    if (outcome.kind === 'done') {
      desk.session.adopt(draft, outcome.revision)
      noteEnded(desk, change, outcome)
      for (const { to, change: theirs, admission } of packs) {
        if (admission.messages.length === 0) continue
        if (to !== desk) to.session.adopt(theirs.record, outcome.revision)
        admission.applied(outcome.revision)
      }
      return true
    }
    // What is known of the queues is of before, which the next transaction will find.
    if (outcome.kind === 'repeated') {
      noteEnded(desk, change, outcome)
      return true
    }
    desk.prune()
    if (outcome.kind === 'changed') return false
    for (const [index, { to }] of packs.entries())
      await this.#learn(to, { results: outcome.results[index]?.results ?? [], revision: outcome.revision })
    return false
  }

  /** What goes to each queue; undefined where something has to be read again, an error where it cannot be stored. */
  async #pack(change: Change, held: Held): Promise<Parcel[] | MillraceError | undefined> {
    const parcels: Parcel[] = []
    for (const [queue, batch] of this.#batches) {
      const parcel = await this.#parcel(change, held, queue, batch)
      if (parcel === undefined || parcel instanceof MillraceError) return parcel
      parcels.push(parcel)
    }
    return parcels
  }

  async #parcel(change: Change, held: Held, queue: string, batch: readonly NewMessage[]) {
    const isOwn = queue === this.#desk.queue
    const to = isOwn ? this.#desk : this.#desk.visit(queue)
    if (!to.isKnown) await this.#look(to)
    const theirs = isOwn ? change : to.change(to.session.record.draft('itself'))
    const admission = new Admission(to, theirs, this.#known.get(queue) ?? new Set())
    const leaving = isOwn ? { length: 1, bytes: held.entry.size } : { length: 0, bytes: 0 }
    const statuses = await admission.add(batch, leaving)
    if (admission.isUnread) await this.#look(to)
    if (admission.outdated || admission.isUnread) return undefined
    if (statuses instanceof QueueFullError && !this.#maintained.has(queue)) {
      this.#maintained.add(queue)
      while ((await maintain(to)) > 0) {}
      return undefined
    }
    if (!(statuses instanceof MillraceError)) return { to, change: theirs, admission }
    // What refuses it may be long ago.
    if (this.#known.has(queue)) return statuses
    await this.#look(to)
    return undefined
  }

  #end(change: Change, { page, index, entry }: Held): SettleResult {
    const command = this.#command
    change.settleClaim(page, index)
    change.record.count('forwarded')
    if (command.kind === 'ack') {
      change.end(entry, { state: 'done' }, command.result)
      return settled.forwarded
    }
    const reason = command.kind === 'dead-letter' ? command.reason : ''
    change.end(entry, { state: 'dead', reason })
    return settled.dead
  }

  #carried(packs: readonly Parcel[]): Carried {
    return {
      compare: packs.flatMap((parcel) => this.#compare(parcel)),
      ops: packs.flatMap((parcel) => this.#ops(parcel)),
      reads: packs.map(({ to }) => this.#reads(to)),
    }
  }

  #compare({ to, admission }: Parcel): Compare[] {
    const ids = admission.messages.map(({ id }) => absent(`${to.keys.messages}${id}`))
    const own = to === this.#desk ? [] : [modIs(to.session.key, to.session.mod)]
    return [...own, ...admission.compare(), ...ids]
  }

  #ops({ to, change, admission }: Parcel): Op[] {
    if (admission.messages.length === 0) return []
    const own = to === this.#desk ? [] : [...change.finished(), to.session.putOf(change.record)]
    return [...own, ...admission.ops()]
  }

  async #look(to: Desk): Promise<void> {
    await this.#learn(to, await to.read(...this.#reads(to)))
  }

  /** What the messages for a queue rest on. */
  #reads({ keys, queue, session }: Desk): Op[] {
    const ids = this.#idsFor(queue).map(
      (id) => ({ kind: 'get', key: `${keys.messages}${id}`, keysOnly: true }) as const,
    )
    return [get(keys.meta), get(keys.arrivals), get(session.key), ...ids]
  }

  #idsFor(queue: string): string[] {
    return [...new Set((this.#batches.get(queue) ?? []).map(({ id }) => id))]
  }

  async #learn(to: Desk, answered: Answered): Promise<void> {
    const { results } = to.note(this.#reads(to), answered)
    if (to !== this.#desk) to.session.adoptStored(only(results[2]))
    const taken = this.#idsFor(to.queue).filter((_, index) => only(results[index + 3]) !== undefined)
    const forgotten = taken.length === 0 ? new Set<string>() : await forgetOutlived(to)
    this.#known.set(to.queue, new Set(taken.filter((id) => !forgotten.has(id))))
  }
}
