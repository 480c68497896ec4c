/**
 * What is done to single messages, to many at once, and to the queue as a whole.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { CancelReply, PurgeState, SharedSettings } from '../../driver.js'
import { BackendUnavailableError } from '../../errors.js'
import { arrivalsOf, isBehindAll, nextArrivals, type StoredArrivals } from './arrivals.js'
import type { Change, Death } from './change.js'
import type { Compare, KeyValue } from './client.js'
import type { Desk, StoredSession } from './desk.js'
import { decodeMessage, type Entry, type EntryRow, entryOf } from './entry.js'
import { type ClaimedRow, claimedRows, find } from './finding.js'
import { arrivalText } from './keys.js'
import { maintainSome, readableOf } from './maintenance.js'
import { encodeMeta, type Meta, unnamed, withSettings } from './meta.js'
import { forgetOutlived, noteEnded } from './outcomes.js'
import { decode, encode } from './record.js'
import { type Amount, Room } from './room.js'
import type { SessionRecord } from './session-record.js'
import { get, head, modIs, only, packed, put, remove } from './txn.js'

/** How many messages of a kind one transaction moves. */
const STEP = 40
const MAX_LOSSES = 50
const DEADLINE_MS = 2_000

/** Adds settings that nobody has named. */
export function adoptSettings(desk: Desk, proposed: Partial<SharedSettings>): Promise<SharedSettings> {
  return changeMeta(desk, (meta) => {
    const fresh = unnamed(meta, proposed)
    return Object.keys(fresh).length === 0 ? meta : withSettings(meta, fresh)
  })
}

export function configure(desk: Desk, changes: Partial<SharedSettings>): Promise<SharedSettings> {
  return changeMeta(desk, (meta) => withSettings(meta, changes))
}

export async function setPaused(desk: Desk, paused: boolean): Promise<void> {
  await changeMeta(desk, (meta) => (meta.paused === paused && meta.mod > 0 ? meta : { ...meta, paused }))
}

/** Compares and puts what is stored for the queue. Putting the same twice does no harm. */
async function changeMeta(desk: Desk, change: (meta: Meta) => Meta): Promise<SharedSettings> {
  const { keys } = desk
  // Where arrivals stand is for the first enqueue.
  const { results } = await desk.read(get(keys.meta), get(keys.arrivals), get(keys.front))
  if (only(results[2])) desk.noteFront()
  for (let losses = 0; losses < MAX_LOSSES; losses += 1) {
    if (losses > 1) await sleep(Math.random() * Math.min(losses, 10))
    const before = desk.meta
    const wanted = change(before)
    if (wanted === before) return before.settings
    const reply = await desk.host.client().txn(
      {
        compare: [modIs(keys.meta, before.mod)],
        success: [put(keys.meta, encodeMeta(wanted))],
        failure: [get(keys.meta)],
      },
      DEADLINE_MS,
    )
    if (reply.succeeded) {
      desk.adoptMeta({ ...wanted, mod: reply.revision }, reply.revision)
      return wanted.settings
    }
    desk.noteMeta(only(reply.results[0]), reply.revision)
  }
  throw outrun()
}

function outrun(): BackendUnavailableError {
  return new BackendUnavailableError(`others have changed the same ${MAX_LOSSES} times`)
}

/** Makes a change until nothing of what it rests on has changed meanwhile. `plan` answers undefined where nothing is to be done. */
async function until<R>(desk: Desk, plan: () => Promise<Step<R> | { readonly result: R }>): Promise<R> {
  for (let losses = 0; losses < MAX_LOSSES; losses += 1) {
    const step = await desk.patiently(plan)
    if (!('draft' in step)) return step.result
    const ops = [...step.change.finished(), desk.session.putOf(step.draft)]
    const outcome = await desk.session.commit({ compare: step.compare, success: packed(ops, 20), failure: [] })
    if (outcome.kind === 'done') desk.session.adopt(step.draft, outcome.revision)
    if (outcome.kind === 'done' || outcome.kind === 'repeated') {
      if (outcome.kind === 'done' && step.arrivals) desk.noteArrived(arrivalsOf(step.arrivals, outcome.revision))
      noteEnded(desk, step.change, outcome)
      desk.prune()
      return step.result
    }
    desk.prune()
    if (losses > 1) await sleep(Math.random() * Math.min(losses, 10))
  }
  throw outrun()
}

interface Step<R> {
  readonly draft: SessionRecord
  readonly change: Change
  readonly compare: readonly Compare[]
  readonly result: R
  readonly arrivals?: StoredArrivals
}

/** Cancels what waits, or asks for the cancel of what is claimed. */
export function cancel(desk: Desk, id: string): Promise<CancelReply> {
  return until<CancelReply>(desk, async () => {
    const found = await find(desk, id)
    if (found.state === 'unknown') return { result: 'unknown' }
    if (found.state === 'dead') return { result: 'finished' }
    if (found.state === 'ended') return { result: (await forgetOutlived(desk)).has(id) ? 'unknown' : 'finished' }
    const draft = desk.session.record.draft('itself')
    const change = desk.change(draft)
    if (found.state === 'claimed')
      return { ...requestCancel(desk, change, draft, found.row, found.record, found.mod), result: 'cancelling' }
    change.takeOff(found.state, found.key, found.entry)
    change.endCancelled(found.entry)
    return { draft, change, compare: [modIs(found.key, found.mod)], result: 'cancelled' }
  })
}

function requestCancel(
  desk: Desk,
  change: Change,
  draft: SessionRecord,
  { session, page, index, entry }: ClaimedRow,
  record: SessionRecord,
  mod: number,
) {
  change.requestCancel(entry.id)
  if (session === desk.session.name) {
    draft.requestCancel(page, index)
    return { draft, change, compare: [modIs(desk.session.key, mod)] }
  }
  const theirs = record.draft('another')
  theirs.requestCancel(page, index)
  const key = `${desk.keys.sessions}${session}`
  change.ops.push(put(key, theirs.encode()))
  return { draft, change, compare: [modIs(key, mod)] }
}

/** Drops up to so many messages in these states; answers how many. */
export async function purge(desk: Desk, states: readonly PurgeState[], limit: number): Promise<number> {
  let purged = 0
  for (const state of states) {
    while (purged < limit) {
      const count = await purgeSome(desk, state, Math.min(STEP, limit - purged))
      if (count === 0) break
      purged += count
    }
  }
  return purged
}

function purgeSome(desk: Desk, state: PurgeState, limit: number): Promise<number> {
  if (state === 'claimed') return purgeClaimed(desk, limit)
  if (state === 'dead') return purgeFirstDead(desk, limit)
  return until<number>(desk, async () => {
    const { results } = await desk.read(get(desk.keys.meta), head(desk.keys[state], limit))
    const { kvs = [] } = results[1] ?? {}
    const found = await readableOf(desk, kvs, state)
    if (found.length === 0) return { result: kvs.length }
    const draft = desk.session.record.draft('itself')
    const change = desk.change(draft)
    for (const { key, entry } of found) {
      change.takeOff(state, key, entry)
      drop(change, entry)
    }
    return { draft, change, compare: found.map(({ key, mod }) => modIs(key, mod)), result: found.length }
  })
}

function drop(change: Change, entry: Entry): void {
  change.record.count('purged')
  change.forget(entry)
}

/** Claims of one session at a time: it finds them gone. */
function purgeClaimed(desk: Desk, limit: number): Promise<number> {
  return until<number>(desk, async () => {
    const { rows, sessions } = await claimedRows(desk)
    const session = rows[0]?.session
    if (session === undefined) return { result: 0 }
    const some = rows.filter((row) => row.session === session).slice(0, limit)
    const draft = desk.session.record.draft('itself')
    const { record, mod } = sessions.get(session) as StoredSession
    if (session === desk.session.name) {
      const change = desk.change(draft)
      dropClaims(change, some)
      return { draft, change, compare: [modIs(desk.session.key, mod)], result: some.length }
    }
    const theirs = record.draft('another')
    const change = desk.changeOf(session, theirs)
    dropClaims(change, some)
    const key = `${desk.keys.sessions}${session}`
    change.ops.push(put(key, theirs.encode()))
    return { draft, change, compare: [modIs(key, mod)], result: some.length }
  })
}

function dropClaims(change: Change, rows: readonly ClaimedRow[]): void {
  for (const { page, index, entry } of rows) {
    change.settleClaim(page, index)
    drop(change, entry)
  }
}

interface StoredDeath {
  readonly stored: KeyValue
  readonly death: Death
  readonly entry: Entry
}

async function readDead(desk: Desk, ids: readonly string[]): Promise<StoredDeath[]> {
  const { results } = await desk.read(
    get(desk.keys.meta),
    get(desk.keys.arrivals),
    ...ids.map((id) => get(`${desk.keys.dead}${id}`)),
  )
  return results.slice(2).flatMap((result) => {
    const stored = only(result)
    if (stored === undefined) return []
    const death = decode<Death>(stored.value, 'a dead letter')
    return [{ stored, death, entry: entryOf(death.entry as EntryRow) }]
  })
}

function purgeFirstDead(desk: Desk, limit: number): Promise<number> {
  return until<number>(desk, async () => {
    const { results } = await desk.read(head(desk.keys.deaths, limit))
    const ids = (results[0]?.kvs ?? []).map(({ value }) => decode<string>(value, 'a death'))
    return ids.length === 0 ? { result: 0 } : dropDead(desk, await readDead(desk, ids), (dead) => dead.length)
  })
}

function dropDead<R>(desk: Desk, dead: readonly StoredDeath[], result: (dead: readonly StoredDeath[]) => R): Step<R> {
  const draft = desk.session.record.draft('itself')
  const change = desk.change(draft)
  for (const one of dead) {
    exhume(desk, change, one)
    // What is dead costs nothing of `maxBytes`.
    change.record.count('bytes', one.entry.size)
    drop(change, one.entry)
  }
  return { draft, change, compare: dead.map(({ stored }) => modIs(stored.key, stored.mod)), result: result(dead) }
}

function exhume(desk: Desk, change: Change, { stored, death }: StoredDeath): void {
  change.record.count('dead', -1)
  change.ops.push(remove(stored.key), remove(`${desk.keys.deaths}${death.order}`))
}

/** Drops dead letters; for each id whether it was one. */
export async function purgeDead(desk: Desk, ids: readonly string[]): Promise<boolean[]> {
  const dropped = new Set<string>()
  for (const some of steps(ids)) {
    const done = await until<readonly string[]>(desk, async () => {
      const dead = await readDead(desk, some)
      return dead.length === 0 ? { result: [] } : dropDead(desk, dead, idsOf)
    })
    for (const id of done) dropped.add(id)
  }
  return firsts(ids, dropped)
}

/** Brings dead letters back as if they were new; for each id whether it was one. All, or none where there is no room. */
export async function requeueDead(desk: Desk, ids: readonly string[]): Promise<boolean[]> {
  const back = new Set<string>()
  const { maxLength, maxBytes } = desk.meta.settings.limits
  // What is past its time takes no room.
  if (maxLength !== null || maxBytes !== null) await desk.patiently(() => maintainSome(desk))
  if (ids.length > STEP) await desk.patiently(() => checkRoom(desk, ids))
  for (const some of steps(ids)) {
    const done = await until<readonly string[]>(desk, () => revive(desk, some))
    for (const id of done) back.add(id)
  }
  return firsts(ids, back)
}

/** All come back or none: so what takes several steps begins only where there is room for all. */
async function checkRoom(desk: Desk, ids: readonly string[]): Promise<void> {
  const dead: StoredDeath[] = []
  for (const some of steps(ids)) dead.push(...(await readDead(desk, some)))
  const room = new Room(desk, desk.change(desk.session.record.draft('itself')))
  const { whenFull } = desk.meta.settings.limits
  const full = whenFull === 'dropOldest' ? room.tooLarge(amountOf(dead)) : await room.take(amountOf(dead))
  if (full) throw full
}

async function revive(
  desk: Desk,
  ids: readonly string[],
): Promise<Step<readonly string[]> | { readonly result: readonly string[] }> {
  const dead = await readDead(desk, ids)
  if (dead.length === 0) return { result: [] }
  const draft = desk.session.record.draft('itself')
  const change = desk.change(draft)
  const { results } = await desk.read(...dead.map(({ entry }) => get(`${desk.keys.messages}${entry.id}`)))
  // What becomes known meanwhile is of later: all of this rests on what stands now.
  const { arrivals } = desk
  const { meta } = change
  const room = new Room(desk, change)
  const full = await room.take(amountOf(dead), undefined, new Set(ids))
  if (room.isUnread) return revive(desk, ids)
  if (full) throw full
  dead.forEach((one, index) => {
    const stored = only(results[index])
    const ttlMs = stored && decodeMessage(stored.value).value.ttlMs
    exhume(desk, change, one)
    change.record.count('bytes', one.entry.size)
    change.makeReady(
      {
        ...one.entry,
        arrival: arrivalText({ turn: arrivals.turn + 1, index }),
        arrivedAt: change.now,
        attempt: 1,
        deliveries: 0,
        errors: [],
        expiresAt: ttlMs === undefined ? 0 : change.now + ttlMs,
      },
      'x',
      isBehindAll(one.entry.priority, arrivals, meta),
    )
  })
  const next = nextArrivals(
    arrivals,
    dead.map(({ entry }) => entry.priority),
  )
  change.ops.push(put(desk.keys.arrivals, encode({ ...next, r: dead.length })))
  const compare = [
    modIs(desk.keys.meta, meta.mod),
    modIs(desk.keys.arrivals, arrivals.mod),
    ...dead.map(({ stored }) => modIs(stored.key, stored.mod)),
    ...room.compare(),
  ]
  return { draft, change, compare, result: idsOf(dead), arrivals: next }
}

function amountOf(dead: readonly StoredDeath[]): Amount {
  return { length: dead.length, bytes: dead.reduce((sum, { entry }) => sum + entry.size, 0) }
}

function idsOf(dead: readonly StoredDeath[]): string[] {
  return dead.map(({ entry }) => entry.id)
}

function steps(ids: readonly string[]): string[][] {
  const unique = [...new Set(ids)]
  const some: string[][] = []
  for (let from = 0; from < unique.length; from += STEP) some.push(unique.slice(from, from + STEP))
  return some
}

function firsts(ids: readonly string[], done: ReadonlySet<string>): boolean[] {
  return ids.map((id, index) => done.has(id) && ids.indexOf(id) === index)
}
