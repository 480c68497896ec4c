/**
 * Listings, a page at a time.
 */
import type { Paged, Page as PageRequest, StoredDeadLetter, StoredMessage } from '../../driver.js'
import type { Death } from './change.js'
import type { Desk } from './desk.js'
import { decodeMessage, type Entry, type EntryRow, entryOf, type Header, readableEntry } from './entry.js'
import { type ClaimedRow, claimedRows } from './finding.js'
import { after, endOf, INSTANT_DIGITS } from './keys.js'
import { decode, readable } from './record.js'
import { get, only, range } from './txn.js'

const MAX_PAGE = 100
/** Payloads of a page, at most one above. */
const MAX_PAGE_BYTES = 1_000_000

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
  const placed = kvs.map(({ key, value }) => ({ cursor: key.slice(prefix.length), entry: readableEntry(value) }))
  return pageOf(desk, placed, more, ({ cursor: place, entry }, message): StoredMessage => {
    const shown = shownMessage(entry, message, state)
    return state === 'delayed' ? { ...shown, dueAt: Number.parseInt(place.slice(0, INSTANT_DIGITS), 16) } : shown
  })
}

/** A page of claimed messages, the oldest claim first. */
export async function listClaimed(desk: Desk, { after: cursor, limit }: PageRequest): Promise<Paged<StoredMessage>> {
  const { rows } = await claimedRows(desk)
  const placed = rows
    .map((row) => ({ cursor: fenceText(row), row, entry: row.entry }))
    .toSorted((one, other) => (one.cursor < other.cursor ? -1 : 1))
    .filter((one) => cursor === undefined || one.cursor > cursor)
  const some = placed.slice(0, Math.min(limit, MAX_PAGE))
  return pageOf(desk, some, some.length < placed.length, ({ row, entry }, message): StoredMessage => {
    const { stored, progress } = row
    return {
      ...shownMessage(entry, message, 'claimed'),
      leaseExpiresAt: stored.at + stored.leaseMs,
      consumer: stored.consumer,
      ...(progress && { progress }),
    }
  })
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
    const order = key.slice(keys.deaths.length)
    // One that came back and died again is further on.
    const isHere = death?.order === order
    return { cursor: order, death, entry: isHere ? entryOf(death.entry as EntryRow) : undefined }
  })
  return pageOf(desk, placed, more, ({ death, entry }, { header, bytes }): StoredDeadLetter => {
    const { reason, attempts, deadAt } = death as Death
    return {
      id: entry.id,
      bytes,
      reason,
      attempts,
      deliveryCount: entry.deliveries,
      priority: entry.priority,
      ...named(header),
      enqueuedAt: header.enqueuedAt,
      deadAt,
      errors: entry.errors,
    }
  })
}

/** What is listed: where it stands in the listing, and the message, unless it is gone or cannot be read. */
interface Listed {
  readonly cursor: string
  readonly entry: Entry | undefined
}

interface Message {
  readonly header: Header
  readonly bytes: Uint8Array
}

/** Those with a payload, up to a bound of bytes. `more`: there are others behind them. */
async function pageOf<T extends Listed, I>(
  desk: Desk,
  listed: readonly T[],
  more: boolean,
  shown: (one: T & { readonly entry: Entry }, message: Message) => I,
): Promise<Paged<I>> {
  const some = listed.slice(0, fitting(listed))
  const here = some.flatMap((one) => (one.entry ? [{ ...one, entry: one.entry }] : []))
  const ops = here.map(({ entry }) => get(`${desk.keys.messages}${entry.id}`))
  const results = ops.length === 0 ? [] : (await desk.read(...ops)).results
  const items = here.flatMap((one, index) => {
    const stored = only(results[index])
    const message = stored && readable(() => decodeMessage(stored.value))
    return message ? [shown(one, { header: message.value, bytes: message.bytes })] : []
  })
  const last = more || some.length < listed.length ? some.at(-1) : undefined
  return last ? { items, next: last.cursor } : { items }
}

/** How many of the first go in one reply; at least one. */
function fitting(listed: readonly Listed[]): number {
  let bytes = 0
  const end = listed.findIndex(({ entry }, index) => {
    bytes += entry?.size ?? 0
    return bytes > MAX_PAGE_BYTES && index > 0
  })
  return end === -1 ? listed.length : end
}

function shownMessage(entry: Entry, { header, bytes }: Message, state: StoredMessage['state']): StoredMessage {
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
