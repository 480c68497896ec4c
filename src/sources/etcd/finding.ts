/**
 * Where a message is, and what is claimed.
 */
import type { StoredOutcome } from '../../driver.js'
import type { Death } from './change.js'
import type { KeyValue, Op, Result } from './client.js'
import type { Desk, StoredSession } from './desk.js'
import { decodeEntry, decodeMessage, type Entry, type EntryRow, entryOf, type Header } from './entry.js'
import { endOf } from './keys.js'
import type { Page } from './page.js'
import { decode } from './record.js'
import type { SessionRecord } from './session-record.js'
import { get, nested, only, present, range } from './txn.js'

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
