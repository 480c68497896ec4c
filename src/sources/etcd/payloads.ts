/**
 * Payloads of messages that were claimed.
 */
import type { Claim } from '../../driver.js'
import type { Desk, Held } from './desk.js'
import { decodeMessage, type Entry } from './entry.js'
import { readable } from './record.js'
import { now } from './time.js'
import { get, only, packed } from './txn.js'

/** Payloads are read up to so many bytes at a time: the client takes no longer answers. */
export const MAX_READ_BYTES = 1_000_000

export interface Claimed {
  readonly entry: Entry
  /** Where it was claimed, without the name of the queue. */
  readonly place: string
}

/** What is stored under the ids of these, page by page. */
export async function readPayloads(
  desk: Desk,
  rows: readonly { readonly entry: Entry }[],
): Promise<(Buffer | undefined)[]> {
  const payloads: (Buffer | undefined)[] = []
  while (payloads.length < rows.length) {
    const gets = pageFrom(rows, payloads.length).map(({ entry }) => get(`${desk.keys.messages}${entry.id}`))
    const { results } = await desk.patiently(() => desk.read(...gets))
    payloads.push(...results.map((result) => only(result)?.value))
  }
  return payloads
}

function pageFrom<T extends { readonly entry: Entry }>(rows: readonly T[], from: number): readonly T[] {
  let bytes = rows[from]?.entry.size ?? 0
  let to = from + 1
  for (; to < rows.length; to += 1) {
    bytes += rows[to]?.entry.size ?? 0
    if (bytes > MAX_READ_BYTES) break
  }
  return rows.slice(from, to)
}

/** The claim as it is handed over; undefined where its payload is gone or cannot be read. */
export function claimOf(held: Held, stored: Buffer | undefined, fence: number, leaseMs: number): Claim | undefined {
  const message = stored && readable(() => decodeMessage(stored))
  if (message === undefined) return undefined
  const { entry, id, token } = held
  const { value, bytes } = message
  return {
    id,
    token,
    fence,
    bytes,
    attempt: entry.attempt,
    deliveryCount: entry.deliveries,
    priority: entry.priority,
    ...(value.key !== undefined && { key: value.key }),
    ...(value.headers !== undefined && { headers: value.headers }),
    enqueuedAt: value.enqueuedAt,
    leaseMs,
    leaseExpiresAt: now() + leaseMs,
  }
}

/** Makes dead letters of claims that cannot be handed over, since somebody has deleted what they stand for. */
export async function buryLost(desk: Desk, lost: readonly Held[]): Promise<void> {
  const { session } = desk
  const draft = session.record.draft('itself')
  const change = desk.change(draft)
  for (const { page, index, entry } of lost) {
    change.settleClaim(page, index)
    change.bury(entry, 'its payload is gone', entry.attempt)
  }
  const outcome = await session.commit({
    compare: [],
    success: packed([...change.finished(), session.putOf(draft)], 20),
    failure: [],
  })
  // Where another has changed something they lapse, and are found again.
  if (outcome.kind === 'changed') return
  if (outcome.kind === 'done') session.adopt(draft, outcome.revision)
  for (const { token } of lost) desk.claims.delete(token)
}
