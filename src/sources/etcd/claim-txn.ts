/**
 * The part of a transaction that claims. It is a transaction inside of it, with branches: where another consumer has taken
 * what was seen first, what comes after that is claimed in the same step, and where nothing can be claimed the session's
 * record is put without a claim.
 */
import { expiryKey, pageKey } from './change.js'
import type { Compare, Op, Result } from './client.js'
import type { Desk } from './desk.js'
import { type Entry, entryRow } from './entry.js'
import { after } from './keys.js'
import type { Holder } from './leases.js'
import type { Page } from './page.js'
import { MAX_READ_BYTES } from './payloads.js'
import type { Candidate, Head } from './queue-head.js'
import { encode } from './record.js'
import type { SessionRecord } from './session-record.js'
import { now } from './time.js'
import { get, modIs, nested, only, present, put, remove, removeRange } from './txn.js'

/** Claims of one transaction: each costs a condition, of which there may be so many on a path. */
const MAX_CLAIMS = 100
/** Those with a time to live cost an operation more. */
const MAX_EXPIRING_CLAIMS = 45
/** So many claims are few: to try other windows costs little then. */
const FEW = 4
/** Windows that are tried where another consumer took the first. */
const WINDOWS = 8

/** What is to be claimed. */
export interface Claiming {
  readonly terms: { readonly consumer: string; readonly take: boolean; readonly leaseMs: number }
  readonly holder: Holder
  readonly page: number
  /** The record of the session with the claims, and without. */
  readonly draft: SessionRecord
  readonly without: SessionRecord
  /** The first of these that is as it was seen is claimed. */
  readonly windows: readonly (readonly Candidate[])[]
}

export interface Granted {
  readonly window: readonly Candidate[]
  /** Absent where they are to be read apart. */
  readonly payloads: readonly (Buffer | undefined)[] | undefined
}

/** How many ready messages are looked at for so many claims. */
export function windowFor(wanted: number): number {
  return Math.min(MAX_CLAIMS, wanted) + WINDOWS
}

/** Plans to claim up to so many of what is ready; undefined where nothing is. */
export function planClaims(
  { candidates }: Head,
  wanted: number,
  without: SessionRecord,
  holder: Holder,
  terms: Claiming['terms'],
  contended: boolean,
): Claiming {
  const expiring = candidates.some(({ entry }) => entry.expiresAt > 0)
  const size = Math.min(wanted, candidates.length, expiring ? MAX_EXPIRING_CLAIMS : MAX_CLAIMS)
  const draft = without.draft('another')
  draft.pages.set(draft.turn, { lease: holder.id, size, settled: 0n, cancelled: 0n })
  draft.count('ready', -size)
  draft.count('claimed', size)
  return { terms, holder, page: draft.turn, draft, without, windows: windowsOf(candidates, size, contended) }
}

/** The first messages, and where others have been faster and few are wanted, those after them. */
function windowsOf(candidates: readonly Candidate[], size: number, contended: boolean): Candidate[][] {
  const windows: Candidate[][] = []
  const most = contended && size <= FEW ? WINDOWS : 1
  // One further on each time: whoever took the first of them leaves none behind that would come later.
  for (let from = 0; windows.length < most && from + size <= candidates.length; from += 1) {
    windows.push(candidates.slice(from, from + size))
  }
  return windows
}

export function claimOp(desk: Desk, { revision }: Head, claiming: Claiming): Op {
  const { keys, meta, session } = desk
  const { holder, windows, without } = claiming
  const live = `${keys.lives}${holder.id}`
  const leaf: Op[] = [session.putOf(without), get(keys.meta), get(live)]
  const holding = session.putOf(claiming.draft)
  let branch: readonly Op[] = leaf
  for (const window of windows.toReversed()) {
    const asSeen = window.map(({ key, mod }) => modIs(key, mod))
    branch = [nested(asSeen, [holding, ...grantOps(desk, claiming, window)], branch)]
  }
  const first = windows[0]?.[0] as Candidate
  const last = windows.at(-1)?.at(-1) as Candidate
  const general: Compare[] = [
    modIs(keys.meta, meta.mod),
    present(live),
    ...desk.head.nothingBefore(first.key, last.key, revision),
  ]
  return nested(general, branch, leaf)
}

function grantOps({ keys, session }: Desk, claiming: Claiming, window: readonly Candidate[]): Op[] {
  const { terms, page } = claiming
  const stored: Page = {
    consumer: terms.consumer,
    taken: terms.take,
    leaseMs: terms.leaseMs,
    at: now(),
    rows: window.map(({ entry }) => entryRow(handedOver(entry))),
    places: window.map(({ key }) => placeOf(keys.root, key)),
  }
  const [first] = window
  const last = window.at(-1)
  const ops: Op[] = [put(pageKey(keys, session.name, page), encode(stored))]
  // All of them, and nothing else: that they are as they were seen, and nothing is between them, was compared.
  if (first && last) ops.push(removeRange(first.key, after(last.key)))
  for (const { entry } of window) if (entry.expiresAt > 0) ops.push(remove(expiryKey(keys, entry)))
  if (readsAlong(window)) for (const { entry } of window) ops.push(get(`${keys.messages}${entry.id}`))
  return ops
}

function readsAlong(window: readonly Candidate[]): boolean {
  return window.reduce((bytes, { entry }) => bytes + entry.size, 0) <= MAX_READ_BYTES
}

/** Which window was granted, from the answers of the transactions inside of each other. */
export function grantedIn(result: Result, { windows }: Claiming): Granted | undefined {
  if (!result.succeeded) return undefined
  let at = result.results[0]
  for (const window of windows) {
    if (at?.succeeded) {
      const gets = at.results.slice(at.results.length - window.length)
      return { window, payloads: readsAlong(window) ? gets.map((one) => only(one)?.value) : undefined }
    }
    at = at?.results[0]
  }
  return undefined
}

/** What was read where nothing was claimed: the queue, and the marker of the lease. */
export function missedIn(result: Result): readonly Result[] {
  let leaf = result
  while (leaf.results[0]?.results.length) leaf = leaf.results[0] as Result
  return leaf.results.slice(1)
}

export function handedOver(entry: Entry): Entry {
  return { ...entry, deliveries: entry.deliveries + 1 }
}

export function placeOf(root: string, key: string): string {
  return key.slice(root.length)
}
