/**
 * What is asked about the queue: numbers, listings, one message. Nothing here changes anything.
 */
import type {
  Paged,
  Page as PageRequest,
  QueueStats,
  StoredDeadLetter,
  StoredMessage,
  StoredOutcome,
} from '../../driver.js'
import type { Death } from './change.js'
import type { KeyValue, Op, Result } from './client.js'
import type { Desk, StoredSession } from './desk.js'
import { decodeEntry, decodeMessage, type Entry, type EntryRow, entryOf, type Header, readableEntry } from './entry.js'
import { after, endOf, INSTANT_DIGITS } from './keys.js'
import { isDue } from './maintenance.js'
import { candidatesIn, type Front, oldestBehind } from './oldest.js'
import type { Page } from './page.js'
import { decode } from './record.js'
import type { Counts, SessionRecord } from './session-record.js'
import { now } from './time.js'
import { get, nested, only, present, range } from './txn.js'

const MAX_PAGE = 100
/** Payloads of a page of a listing, at most one above. */
const MAX_PAGE_BYTES = 1_000_000

/** So many of the first ready messages are read with the numbers. */
const FRONT = 16

/** All numbers of the queue, after what is due was done. */
export async function statsOf(desk: Desk, doDue: () => Promise<unknown>): Promise<QueueStats> {
  const first = await readNumbers(desk)
  if (!isDue(first.dueAt)) return statsFrom(desk, first)
  await doDue()
  return statsFrom(desk, await readNumbers(desk))
}

interface Numbers {
  readonly sum: Counts
  readonly front: Front
  readonly dueAt: number
}

async function readNumbers(desk: Desk): Promise<Numbers> {
  const { op, isWhole } = desk.frontOp(FRONT)
  const { results } = await desk.read(get(desk.keys.meta), desk.sessionsOp(), op, ...desk.dueOps())
  const { kvs = [], more = false } = results[2] ?? {}
  const front = { candidates: candidatesIn(kvs), isAll: isWhole && !more }
  return { sum: desk.countsIn(results[1]), front, dueAt: desk.dueIn(results.slice(3)) }
}

async function statsFrom(desk: Desk, { sum, front }: Numbers): Promise<QueueStats> {
  const oldest = sum.ready > 0 ? await oldestBehind(desk, front) : undefined
  return {
    ready: sum.ready,
    delayed: sum.delayed,
    claimed: sum.claimed,
    dead: sum.dead,
    oldestReadyAgeMs: oldest === undefined ? 0 : Math.max(0, now() - oldest.entry.arrivedAt),
    paused: desk.meta.paused,
    enqueuedTotal: sum.enqueued,
    ackedTotal: sum.acked,
    forwardedTotal: sum.forwarded,
    purgedTotal: sum.purged,
    expiredTotal: sum.expired,
    cancelledTotal: sum.cancelled,
    droppedTotal: sum.dropped,
  }
}

/** A page of ready or delayed messages, in their order. */
export async function listPlaced(
  desk: Desk,
  state: 'ready' | 'delayed',
  { after: cursor, limit }: PageRequest,
): Promise<Paged<StoredMessage>> {
  const prefix = desk.keys[state]
  const from = cursor === undefined ? prefix : after(`${prefix}${cursor}`)
  const { results } = await desk.read(range(from, endOf(prefix), Math.min(limit, MAX_PAGE)))
  const { kvs = [], more = false } = results[0] ?? {}
  const placed = kvs.map((stored) => ({ key: stored.key, entry: readableEntry(stored.value) }))
  const read = await withPayloads(desk, placed)
  const items = read.map(({ key, entry, header, bytes }): StoredMessage => {
    const shown = shownMessage(entry, header, bytes, state)
    return state === 'delayed'
      ? { ...shown, dueAt: Number.parseInt(key.slice(prefix.length).slice(0, INSTANT_DIGITS), 16) }
      : shown
  })
  const cut = placed[read.length === 0 ? placed.length - 1 : (read.at(-1)?.at ?? 0)]
  const last = cut && (more || cut !== placed.at(-1)) ? cut.key.slice(prefix.length) : undefined
  return last === undefined ? { items } : { items, next: last }
}

export interface ClaimedRow {
  readonly session: string
  readonly page: number
  readonly index: number
  readonly entry: Entry
  readonly place: string
  readonly stored: Page
  /** The revision that claimed it. */
  readonly revision: number
  readonly cancelRequested: boolean
  readonly progress: Buffer | undefined
}

interface ClaimedRows {
  readonly rows: readonly ClaimedRow[]
  readonly sessions: ReadonlyMap<string, StoredSession>
}

/** All live claims of all sessions, as they are at one revision. */
export async function claimedRows(desk: Desk): Promise<ClaimedRows> {
  const { results } = await desk.read(...claimsOps(desk), get(desk.keys.meta))
  return claimedIn(desk, results)
}

function claimsOps(desk: Desk): Op[] {
  const { claims } = desk.keys
  return [desk.sessionsOp(), range(claims, endOf(claims))]
}

function claimedIn(desk: Desk, results: readonly Result[]): ClaimedRows {
  const { keys } = desk
  const sessions = new Map(desk.sessionsIn(results[0]).map((session) => [session.name, session]))
  const progress = new Map<string, Buffer>()
  const pages: KeyValue[] = []
  for (const stored of results[1]?.kvs ?? []) {
    const path = stored.key.slice(keys.claims.length).split('/')
    if (path.length === 3) progress.set(path.join('/'), stored.value)
    else pages.push(stored)
  }
  const rows = pages.flatMap((stored) => rowsOf(stored, keys.claims, sessions, progress))
  return { rows, sessions }
}

function rowsOf(
  { key, value, create }: KeyValue,
  prefix: string,
  sessions: ReadonlyMap<string, StoredSession>,
  progress: ReadonlyMap<string, Buffer>,
): ClaimedRow[] {
  const path = key.slice(prefix.length)
  const [session = '', number = ''] = path.split('/')
  const page = Number.parseInt(number, 16)
  const record = sessions.get(session)?.record
  const stored = decode<Page>(value, 'a page of claims')
  return (record?.liveIn(page) ?? []).map((index) => ({
    session,
    page,
    index,
    entry: entryOf(stored.rows[index] as EntryRow),
    place: stored.places[index] ?? '',
    stored,
    revision: create,
    cancelRequested: record?.isCancelRequested(page, index) === true,
    progress: progress.get(`${path}/${index}`),
  }))
}

/** A page of claimed messages, the oldest claim first. */
export async function listClaimed(desk: Desk, { after: cursor, limit }: PageRequest): Promise<Paged<StoredMessage>> {
  const { rows } = await claimedRows(desk)
  const placed = rows
    .map((row) => ({ key: fenceText(row), row, entry: row.entry }))
    .toSorted((one, other) => (one.key < other.key ? -1 : 1))
    .filter(({ key }) => cursor === undefined || key > cursor)
  const some = placed.slice(0, Math.min(limit, MAX_PAGE))
  const read = await withPayloads(desk, some)
  const items = read.map(({ entry, header, bytes, at }): StoredMessage => {
    const { stored, progress } = (some[at] as (typeof some)[number]).row
    return {
      ...shownMessage(entry, header, bytes, 'claimed'),
      leaseExpiresAt: stored.at + stored.leaseMs,
      consumer: stored.consumer,
      ...(progress && { progress }),
    }
  })
  const cut = some[read.length === 0 ? some.length - 1 : (read.at(-1)?.at ?? 0)]
  return cut === undefined || cut === placed.at(-1) ? { items } : { items, next: cut.key }
}

function fenceText({ revision, index }: ClaimedRow): string {
  return `${String(revision).padStart(16, '0')}${String(index).padStart(4, '0')}`
}

/** A page of dead letters, in the order in which they died. */
export async function listDead(desk: Desk, { after: cursor, limit }: PageRequest): Promise<Paged<StoredDeadLetter>> {
  const { keys } = desk
  const from = cursor === undefined ? keys.deaths : after(`${keys.deaths}${cursor}`)
  const first = await desk.read(range(from, endOf(keys.deaths), Math.min(limit, MAX_PAGE)))
  const { kvs = [], more = false } = first.results[0] ?? {}
  const ids = kvs.map(({ value }) => decode<string>(value, 'a death'))
  const deaths = ids.length === 0 ? [] : (await desk.read(...ids.map((id) => get(`${keys.dead}${id}`)))).results
  const placed = kvs.map(({ key }, index) => {
    const stored = only(deaths[index])
    const death = stored && decode<Death>(stored.value, 'a dead letter')
    // One that came back and died again is further on.
    const here = death?.order === key.slice(keys.deaths.length) ? death : undefined
    return { key, death: here, entry: here && entryOf(here.entry as EntryRow) }
  })
  const read = await withPayloads(desk, placed)
  const items = read.map(({ entry, header, bytes, at }): StoredDeadLetter => {
    const death = placed[at]?.death as Death
    return {
      id: entry.id,
      bytes,
      reason: death.reason,
      attempts: death.attempts,
      deliveryCount: entry.deliveries,
      priority: entry.priority,
      ...named(header),
      enqueuedAt: header.enqueuedAt,
      deadAt: death.deadAt,
      errors: entry.errors,
    }
  })
  const cut = placed[read.length === 0 ? placed.length - 1 : (read.at(-1)?.at ?? 0)]
  const last = cut && (more || cut !== placed.at(-1)) ? cut.key.slice(keys.deaths.length) : undefined
  return last === undefined ? { items } : { items, next: last }
}

interface WithPayload {
  readonly key: string
  readonly entry: Entry
  readonly header: Header
  readonly bytes: Uint8Array
  /** Which of those that were asked for. */
  readonly at: number
}

/** Reads payloads up to a bound of bytes, in the same order; one that is gone is left out. */
async function withPayloads(
  desk: Desk,
  placed: readonly { readonly key: string; readonly entry: Entry | undefined }[],
): Promise<WithPayload[]> {
  let bytes = 0
  const wanted: { readonly key: string; readonly entry: Entry; readonly at: number }[] = []
  for (const [at, { key, entry }] of placed.entries()) {
    if (entry === undefined) continue
    bytes += entry.size
    if (bytes > MAX_PAGE_BYTES && wanted.length > 0) break
    wanted.push({ key, entry, at })
  }
  if (wanted.length === 0) return []
  const { results } = await desk.read(...wanted.map(({ entry }) => get(`${desk.keys.messages}${entry.id}`)))
  return wanted.flatMap((one, index) => {
    const stored = only(results[index])
    if (stored === undefined) return []
    const { value, bytes: payload } = decodeMessage(stored.value)
    return [{ ...one, header: value, bytes: payload }]
  })
}

function shownMessage(entry: Entry, header: Header, bytes: Uint8Array, state: StoredMessage['state']): StoredMessage {
  return {
    id: entry.id,
    state,
    bytes,
    attempt: entry.attempt,
    deliveryCount: entry.deliveries,
    priority: entry.priority,
    ...named(header),
    enqueuedAt: header.enqueuedAt,
  }
}

function named({ key, headers }: Header) {
  return { ...(key !== undefined && { key }), ...(headers !== undefined && { headers }) }
}

/** Where a message is now. */
export type Whereabouts =
  | { readonly state: 'unknown' }
  | { readonly state: 'ended'; readonly header: Header; readonly bytes: Uint8Array }
  | { readonly state: 'dead'; readonly death: Death; readonly mod: number; readonly header: Header }
  | { readonly state: 'ready' | 'delayed'; readonly key: string; readonly mod: number; readonly entry: Entry }
  | { readonly state: 'claimed'; readonly row: ClaimedRow; readonly record: SessionRecord; readonly mod: number }

const LOOKS = 5

/** Finds a message by its id. */
export async function find(desk: Desk, id: string): Promise<Whereabouts> {
  for (let look = 0; look < LOOKS; look += 1) {
    const { results } = await desk.read(...recordOps(desk, id), get(desk.keys.meta))
    const [message, moved, dead] = results.map(only)
    if (message === undefined) return { state: 'unknown' }
    const { value: header, bytes } = decodeMessage(message.value)
    if (header.end) return { state: 'ended', header, bytes }
    if (dead) return { state: 'dead', death: decode<Death>(dead.value, 'a dead letter'), mod: dead.mod, header }
    const found = await findAt(desk, id, moved ? decode<string>(moved.value, 'a place') : header.place)
    if (found !== undefined && 'state' in found) return found
    const same = [message, moved, dead].every((before, index) => only(found?.[index])?.mod === before?.mod)
    // It is nowhere, which is how one that was acked looks; else it has moved just now.
    if (found !== undefined && same) return { state: 'ended', header: { ...header, end: { state: 'done' } }, bytes }
  }
  return { state: 'unknown' }
}

/**
 * Looks at a place, and where nothing is there at all claims and once more at what was known of the message, in one step. Answers
 * the latter where it is nowhere, and undefined where another is in its place.
 */
async function findAt(desk: Desk, id: string, place: string): Promise<Whereabouts | readonly Result[] | undefined> {
  const { keys } = desk
  const key = `${keys.root}${place}`
  const elsewhere = [...claimsOps(desk), ...recordOps(desk, id)]
  const { results } = await desk.read(nested([present(key)], [get(key)], elsewhere))
  const [looked] = results
  if (looked === undefined) return undefined
  if (looked.succeeded) return placedAt(id, place, only(looked.results[0]))
  const { rows, sessions } = claimedIn(desk, looked.results)
  const row = rows.find((one) => one.entry.id === id)
  const holder = row && sessions.get(row.session)
  if (row && holder) return { state: 'claimed', row, record: holder.record, mod: holder.mod }
  return looked.results.slice(claimsOps(desk).length)
}

function placedAt(id: string, place: string, stored: KeyValue | undefined): Whereabouts | undefined {
  const entry = stored && decodeEntry(stored.value)
  if (stored === undefined || entry?.id !== id) return undefined
  return { state: place.startsWith('r/') ? 'ready' : 'delayed', key: stored.key, mod: stored.mod, entry }
}

/** What is stored under the id of a message, whatever becomes of it. */
function recordOps({ keys }: Desk, id: string): Op[] {
  return [get(`${keys.messages}${id}`), get(`${keys.places}${id}`), get(`${keys.dead}${id}`)]
}

export function outcomeIn(found: Whereabouts): StoredOutcome {
  switch (found.state) {
    case 'unknown':
      return { state: 'unknown' }
    case 'dead':
      return { state: 'dead', reason: found.death.reason }
    case 'ended': {
      const { state, reason = '', result } = found.header.end ?? { state: 'done' }
      if (state === 'dead') return { state, reason }
      return state === 'done' && result ? { state, result: found.bytes } : { state }
    }
    default:
      return { state: 'pending' }
  }
}
