import type { Page, Paged, StoredDeadLetter, StoredMessage } from '../../driver.js'
import { InvalidOptionError } from '../../errors.js'
import { CLAIMED, DEAD, DELAYED, READY } from './message.js'
import type { QueueRow } from './queue-row.js'
import type { Transaction } from './transaction.js'

/** The columns that listings show or are ordered by. */
interface Row {
  readonly seq: number
  readonly id: string
  readonly rank: number
  readonly place: number
  readonly arrival: number
  readonly arrivedAt: number
  readonly priority: number
  readonly enqueuedAt: number
  readonly attempt: number
  readonly deliveryCount: number
  readonly fence: number
  readonly leaseAt: number | null
  readonly consumer: string | null
  readonly attempts: number | null
  readonly reason: string | null
  readonly errors: string | null
  readonly endNumber: number | null
  readonly endedAt: number | null
  readonly progress: Uint8Array | null
  readonly key: string | null
  readonly headers: string | null
  readonly bytes: Uint8Array
}

/** How one state is listed: the order of its index, and the values of a row that say where it stands there. */
interface Listing {
  readonly state: number
  readonly order: readonly (keyof Row & string)[]
}

const READY_ONES: Listing = { state: READY, order: ['rank', 'place', 'arrival'] }
const DELAYED_ONES: Listing = { state: DELAYED, order: ['arrivedAt', 'arrival'] }
/** By the end of the lease. */
const CLAIMED_ONES: Listing = { state: CLAIMED, order: ['leaseAt', 'seq'] }
/** In the order in which they died. */
const DEAD_ONES: Listing = { state: DEAD, order: ['endNumber'] }

const LISTINGS = { ready: READY_ONES, delayed: DELAYED_ONES, claimed: CLAIMED_ONES }

/** The most bytes of payload on a page; what is left out comes with the next. */
const PAGE_BYTES = 8 * 1024 * 1024

/** A page of messages in one state. */
export function listMessages(
  tx: Transaction,
  queue: QueueRow,
  state: StoredMessage['state'],
  page: Page,
): Paged<StoredMessage> {
  return paged(tx, queue, LISTINGS[state], page, (row) => asStored(row, state))
}

/** A page of dead letters. */
export function listDeadLetters(tx: Transaction, queue: QueueRow, page: Page): Paged<StoredDeadLetter> {
  return paged(tx, queue, DEAD_ONES, page, asDeadLetter)
}

/** Reads one message more than asked for, which only tells whether there is a next page. */
function paged<T>(
  tx: Transaction,
  queue: QueueRow,
  { state, order }: Listing,
  page: Page,
  show: (row: Row) => T,
): Paged<T> {
  const after = placeOf(page, order.length)
  const columns = order.join(', ')
  const from = after === undefined ? '' : ` AND (${columns}) > (${order.map(() => '?').join(', ')})`
  const sql = `SELECT * FROM millrace_messages WHERE queue = ? AND state = ${state}${from} ORDER BY ${columns} LIMIT ?`
  const rows = tx.sql(sql).all(queue.id, ...(after ?? []), page.limit + 1) as Row[]
  const fitting = rows.slice(0, Math.min(page.limit, fittingIn(rows)))
  const items = fitting.map(show)
  const last = fitting.at(-1)
  if (last === undefined || fitting.length === rows.length) return { items }
  return { items, next: order.map((column) => last[column]).join(':') }
}

function fittingIn(rows: readonly Row[]): number {
  let bytes = 0
  const tooMuch = rows.findIndex((row, index) => {
    bytes += row.bytes.byteLength
    return index > 0 && bytes > PAGE_BYTES
  })
  return tooMuch === -1 ? rows.length : tooMuch
}

function placeOf({ after }: Page, length: number): number[] | undefined {
  if (after === undefined) return undefined
  const place = after.split(':').map(Number)
  if (place.length === length && place.every(Number.isFinite)) return place
  throw new InvalidOptionError('after', after, 'the cursor of a page of this listing')
}

function asStored(row: Row, state: StoredMessage['state']): StoredMessage {
  const claimed = state === 'claimed'
  return {
    id: row.id,
    state,
    bytes: row.bytes,
    attempt: row.attempt,
    deliveryCount: row.deliveryCount,
    priority: row.priority,
    ...keyAndHeaders(row),
    enqueuedAt: row.enqueuedAt,
    ...(state === 'delayed' && { dueAt: row.arrivedAt }),
    ...(claimed && row.leaseAt !== null && { leaseExpiresAt: row.leaseAt }),
    ...(claimed && row.consumer !== null && { consumer: row.consumer }),
    ...(claimed && row.progress !== null && { progress: row.progress }),
  }
}

function asDeadLetter(row: Row): StoredDeadLetter {
  return {
    id: row.id,
    bytes: row.bytes,
    reason: row.reason ?? '',
    attempts: row.attempts ?? 0,
    deliveryCount: row.deliveryCount,
    priority: row.priority,
    ...keyAndHeaders(row),
    enqueuedAt: row.enqueuedAt,
    deadAt: row.endedAt ?? 0,
    errors: row.errors === null ? [] : JSON.parse(row.errors),
  }
}

function keyAndHeaders({ key, headers }: Row): { key?: string; headers?: Readonly<Record<string, string>> } {
  return { ...(key !== null && { key }), ...(headers !== null && { headers: JSON.parse(headers) }) }
}
