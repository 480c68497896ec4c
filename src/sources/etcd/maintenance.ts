/**
 * What time brings about: delayed messages become ready, times to live end, claims lapse that are not renewed.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { arrivalsOf, isBehindAll, nextArrivals } from './arrivals.js'
import type { Change } from './change.js'
import type { Compare, KeyValue } from './client.js'
import type { Desk, Held } from './desk.js'
import type { Entry } from './entry.js'
import { fixed, INSTANT_DIGITS } from './keys.js'
import { candidatesIn } from './oldest.js'
import { noteEnded } from './outcomes.js'
import type { Candidate } from './queue-head.js'
import { decode, encode } from './record.js'
import { now } from './time.js'
import { get, modIs, only, packed, put, range, remove } from './txn.js'

/** How many messages of a kind one step moves. */
const STEP = 40
/** How often a step is tried while others do the same. */
const TRIES = 5
/** How many steps something else waits for. */
const MOST_STEPS = 10
const ORPHAN_DEADLINE_MS = 2_000

/** Makes ready what is due, and ends what is past its time: a bounded step. Answers how many messages it moved. */
export async function maintain(desk: Desk): Promise<number> {
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const due = await readDue(desk)
    if (due.length === 0) return 0
    const moved = await move(desk, due)
    if (moved !== undefined) return moved
    await sleep(Math.random() * 4 * (attempt + 1))
  }
  return 0
}

/** Nothing of these waits to be done by now. Costs the store something only where something does. */
export function nothingDue({ keys }: Desk): Compare[] {
  const until = fixed(now() + 1, INSTANT_DIGITS)
  return [keys.delayed, keys.expiring].map((prefix) => ({
    key: prefix,
    end: `${prefix}${until}`,
    field: 'create',
    is: 'Equal',
    to: 0,
  }))
}

/** Does what is due, up to a bound. */
export async function maintainSome(desk: Desk): Promise<void> {
  for (let step = 0; step < MOST_STEPS && (await maintain(desk)) > 0; step += 1) {}
}

export function isDue(dueAt: number): boolean {
  return dueAt > 0 && dueAt <= now()
}

interface Due {
  readonly state: 'ready' | 'delayed'
  readonly key: string
  readonly mod: number
  readonly entry: Entry
  readonly dueAt: number
  readonly expires: boolean
}

async function readDue(desk: Desk): Promise<Due[]> {
  const { keys } = desk
  const until = fixed(now() + 1, INSTANT_DIGITS)
  const { results } = await desk.read(
    get(keys.meta),
    get(keys.arrivals),
    range(keys.delayed, `${keys.delayed}${until}`, STEP),
    range(keys.expiring, `${keys.expiring}${until}`, STEP),
  )
  const expired = await readExpired(desk, results[3]?.kvs ?? [])
  const gone = new Set(expired.map(({ key }) => key))
  const delayed = (results[2]?.kvs ?? []).filter(({ key }) => !gone.has(key))
  const found = await readableOf(desk, delayed, 'delayed')
  return [...expired, ...found.map((one) => dueOf(desk, one, 'delayed', false))]
}

async function readExpired(desk: Desk, stored: readonly KeyValue[]): Promise<Due[]> {
  if (stored.length === 0) return []
  const { keys } = desk
  const places = stored.map(({ value }) => decode<string>(value, 'a time to live'))
  const { results } = await desk.read(...places.map((place) => get(`${keys.root}${place}`)))
  const expired: Due[] = []
  const orphans = stored.filter((_, index) => only(results[index]) === undefined)
  const found = results.flatMap(({ kvs }) => kvs)
  for (const state of ['ready', 'delayed'] as const) {
    const ofState = found.filter(({ key }) => key.startsWith(keys[state]))
    for (const one of await readableOf(desk, ofState, state)) expired.push(dueOf(desk, one, state, true))
  }
  // Of messages that are not there. One that is put again meanwhile is left alone.
  for (const { key, mod } of orphans) {
    await desk.host
      .client()
      .txn({ compare: [modIs(key, mod)], success: [remove(key)], failure: [] }, ORPHAN_DEADLINE_MS)
  }
  return expired
}

function dueOf(desk: Desk, { key, mod, entry }: Candidate, state: Due['state'], expires: boolean): Due {
  const dueAt =
    state === 'delayed' ? Number.parseInt(key.slice(desk.keys.delayed.length).slice(0, INSTANT_DIGITS), 16) : 0
  return { state, key, mod, entry, dueAt, expires }
}

/** How many were moved; undefined if others have changed something of it. */
async function move(desk: Desk, due: readonly Due[]): Promise<number | undefined> {
  const draft = desk.session.record.draft('itself')
  const change = desk.change(draft)
  let promoted = 0
  for (const one of due) {
    if (one.expires) {
      change.takeOff(one.state, one.key, one.entry)
      change.expire(one.entry)
    } else {
      promote(desk, change, one, promoted)
      promoted += 1
    }
  }
  const { keys, arrivals, meta } = desk
  const next = nextArrivals(
    arrivals,
    due.filter(({ expires }) => !expires).map(({ entry }) => entry.priority),
  )
  const ops = [...change.finished(), desk.session.putOf(draft)]
  if (promoted > 0) ops.push(put(keys.arrivals, encode(next)))
  const compare = [modIs(keys.meta, meta.mod), ...due.map(({ key, mod }) => modIs(key, mod))]
  if (promoted > 0) compare.push(modIs(keys.arrivals, arrivals.mod))
  const outcome = await desk.session.commit({ compare, success: packed(ops, 20), failure: [] })
  if (outcome.kind === 'done' || outcome.kind === 'repeated') noteEnded(desk, change, outcome)
  if (outcome.kind === 'done') {
    desk.session.adopt(draft, outcome.revision)
    if (promoted > 0) desk.noteArrived(arrivalsOf(next, outcome.revision))
    return due.length
  }
  desk.prune()
  return outcome.kind === 'repeated' ? due.length : undefined
}

/** A delayed message arrives when it is due: after all that has arrived. */
function promote(desk: Desk, change: Change, { key, entry, dueAt }: Due, index: number): void {
  change.takeOff('delayed', key, entry, true)
  const place = `d/${key.slice(desk.keys.delayed.length)}`
  const arrived = { ...entry, arrivedAt: Math.max(dueAt, entry.arrivedAt), arrival: desk.arrival(index) }
  change.makeReady(arrived, place, isBehindAll(entry.priority, desk.arrivals, desk.meta))
}

/** Those that can be read; the others are dropped. */
export async function readableOf(
  desk: Desk,
  stored: readonly KeyValue[],
  state: 'ready' | 'delayed',
): Promise<Candidate[]> {
  const found = candidatesIn(stored)
  if (found.length === stored.length) return found
  const fine = new Set(found.map(({ key }) => key))
  await dropUnreadable(
    desk,
    stored.filter(({ key }) => !fine.has(key)),
    state,
  )
  return found
}

/** Drops what stands among the messages of a state and cannot be read. */
export async function dropUnreadable(
  desk: Desk,
  unreadable: readonly { readonly key: string; readonly mod: number }[],
  state: 'ready' | 'delayed' = 'ready',
): Promise<void> {
  const some = unreadable.slice(0, STEP)
  const draft = desk.session.record.draft('itself')
  draft.count(state, -some.length)
  draft.count('dropped', some.length)
  const ops = [...some.map(({ key }) => remove(key)), desk.session.putOf(draft)]
  const compare = some.map(({ key, mod }) => modIs(key, mod))
  const outcome = await desk.session.commit({ compare, success: packed(ops, 20), failure: [] })
  if (outcome.kind === 'done') desk.session.adopt(draft, outcome.revision)
  desk.prune()
}

/** Ends those of our claims whose lease is over. */
export async function lapseOwn(desk: Desk): Promise<number> {
  let lapsed = 0
  for (;;) {
    const at = performance.now()
    const over = [...desk.claims.values()].filter((held) => held.until <= at || !held.holder.isLive).slice(0, STEP)
    if (over.length === 0) return lapsed
    lapsed += await lapseThese(desk, over)
  }
}

async function lapseThese(desk: Desk, over: readonly Held[]): Promise<number> {
  const draft = desk.session.record.draft('itself')
  const change = desk.change(draft)
  const live = over.filter(({ page, index }) => draft.isLive(page, index))
  for (const { page, index, entry, taken, place } of live) {
    change.settleClaim(page, index)
    change.lapse(entry, taken, desk.session.record.isCancelRequested(page, index), place)
  }
  if (live.length > 0) {
    const ops = [...change.finished(), desk.session.putOf(draft)]
    const outcome = await desk.session.commit({ compare: [], success: packed(ops, 40), failure: [] })
    if (outcome.kind === 'changed') {
      desk.prune()
      return 0
    }
    if (outcome.kind === 'done' || outcome.kind === 'repeated') noteEnded(desk, change, outcome)
    if (outcome.kind === 'done') desk.session.adopt(draft, outcome.revision)
    // Who has let them lapse looks again before it claims: others, who wait, do better to be first.
    desk.head.current = undefined
  }
  for (const { token } of over) desk.claims.delete(token)
  return live.length
}
