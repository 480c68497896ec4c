/**
 * How messages ended, as long as that is kept. The ids that ended in one transaction are one page, so keeping them costs a
 * write for all; a page that is too old, or too much, goes with what is stored under its ids.
 */

import type { Change } from './change.js'
import type { KeyValue, Op, TxnReply } from './client.js'
import type { Desk } from './desk.js'
import { endOf } from './keys.js'
import type { OwnPage } from './outcome-count.js'
import { decode, encode } from './record.js'
import { sumOf } from './session-record.js'
import { now } from './time.js'
import { modIs, packed, put, range, remove } from './txn.js'

/** How many ids one transaction forgets. */
const STEP = 100
/** How many pages of a session are read at a time. */
const PAGES = 100
/** How many sessions are looked at. */
const SESSIONS = 256
/** How many of our own ends may pass at most before others' are counted again. */
const UNCOUNTED = 1_000

export interface Ended {
  readonly at: number
  readonly ids: readonly string[]
}

interface EndPage extends Ended {
  readonly key: string
  readonly mod: number
}

/** Forgets what is past its retention, if anything can be. Answers the ids that are free again. */
export async function forgetOutlived(desk: Desk): Promise<Set<string>> {
  const forgotten = new Set<string>()
  const began = now()
  const until = began - desk.meta.settings.retention.outcomesMs
  if (desk.outcomes.oldestAt > until) return forgotten
  const pages = await oldestPages(desk)
  if (pages.length < SESSIONS) desk.outcomes.oldestAt = Math.min(began, ...pages.map(({ at }) => at))
  for (const oldest of pages) {
    if (oldest.at > until) continue
    for (const page of await pagesFrom(desk, oldest)) {
      if (page.at > until) break
      for (const id of await forget(desk, page, page.ids.length)) forgotten.add(id)
    }
  }
  return forgotten
}

/** Whether any outcome is kept. */
export function endsOp({ keys }: Desk): Op {
  return { kind: 'get', key: keys.ends, end: endOf(keys.ends), limit: 1, keysOnly: true }
}

/** Pages of our own that are forgotten in whole or in part, with what is left of the last. */
export interface Trim {
  readonly pages: readonly OwnPage[]
  readonly rest: Ended | undefined
  readonly count: number
}

/**
 * Forgets as many of our own oldest outcomes as are too many with those that a change adds, as part of that change: so a
 * queue that ends messages all the time needs no transactions to forget them.
 */
export function trimOwn(desk: Desk, change: Change): Trim {
  const { known, own } = desk.outcomes
  const excess = Math.min((known ?? 0) + change.outcomes.length - desk.meta.settings.retention.maxOutcomes, STEP)
  const pages: OwnPage[] = []
  let count = 0
  for (let index = 0; count < excess && index < own.length; index += 1) {
    const page = own[index] as OwnPage
    pages.push(page)
    const ids = page.ids.slice(0, excess - count)
    count += ids.length
    for (const id of ids) change.ops.push(remove(`${desk.keys.messages}${id}`))
    const rest = page.ids.slice(ids.length)
    if (rest.length > 0) {
      change.ops.push(put(page.key, encode({ at: page.at, ids: rest })))
      return counted(change, { pages, rest: { at: page.at, ids: rest }, count })
    }
    change.ops.push(remove(page.key))
  }
  return counted(change, { pages, rest: undefined, count })
}

function counted(change: Change, trim: Trim): Trim {
  change.record.count('outcomes', -trim.count)
  return trim
}

/** A change was made at this revision, with what was trimmed along. */
export function trimmedOwn(desk: Desk, change: Change, { pages, rest, count }: Trim, revision: number): void {
  const { outcomes } = desk
  const last = pages.at(-1)
  outcomes.own.splice(0, pages.length)
  if (rest && last) outcomes.own.unshift({ ...rest, key: last.key, mod: revision })
  if (change.outcomes.length > 0) {
    outcomes.own.push({ key: change.endsKey, mod: revision, at: change.now, ids: change.outcomes })
  }
  outcomes.ended(change.outcomes.length)
  outcomes.forgot(count)
}

/** Counts the outcomes of all sessions now and then, and forgets the oldest where there are more than are to be kept. */
export async function trimOutcomes(desk: Desk): Promise<void> {
  const { maxOutcomes } = desk.meta.settings.retention
  const count = desk.outcomes
  if (count.known === undefined || count.since >= Math.max(1, Math.min(UNCOUNTED, maxOutcomes / 10)))
    await recount(desk)
  if (count.own.length > 0 && (count.known ?? 0) <= maxOutcomes + STEP) return
  while ((count.known ?? 0) > maxOutcomes) {
    const [oldest, next] = (await oldestPages(desk)).toSorted((one, other) => one.at - other.at)
    if (oldest === undefined) return
    await trimSession(desk, oldest, next?.at ?? Number.POSITIVE_INFINITY)
  }
}

/** Forgets what is too many of one session, up to what is older than that of all others. */
async function trimSession(desk: Desk, oldest: EndPage, untilAt: number): Promise<void> {
  for (const page of await pagesFrom(desk, oldest)) {
    const excess = (desk.outcomes.known ?? 0) - desk.meta.settings.retention.maxOutcomes
    if (excess <= 0 || page.at > untilAt) return
    const forgotten = await forget(desk, page, Math.min(excess, page.ids.length))
    if (forgotten.length === 0) await recount(desk)
  }
}

async function recount(desk: Desk): Promise<void> {
  const { results } = await desk.read(desk.sessionsOp())
  desk.outcomes.counted(sumOf(desk.recordsIn(results[0])).outcomes)
}

/** The oldest page of each session. */
async function oldestPages(desk: Desk): Promise<EndPage[]> {
  const { ends } = desk.keys
  const pages: EndPage[] = []
  let from = ends
  while (pages.length < SESSIONS) {
    const [page] = pagesIn(await desk.read(range(from, endOf(ends), 1)))
    if (page === undefined) break
    pages.push(page)
    from = afterSession(page.key)
  }
  return pages
}

async function pagesFrom(desk: Desk, { key }: EndPage): Promise<EndPage[]> {
  return pagesIn(await desk.read(range(key, afterSession(key), PAGES)))
}

function afterSession(key: string): string {
  return `${key.slice(0, key.lastIndexOf('/'))}0`
}

function pagesIn({ results }: TxnReply): EndPage[] {
  return (results[0]?.kvs ?? []).map((stored: KeyValue) => ({
    ...decode<Ended>(stored.value, 'a page of outcomes'),
    key: stored.key,
    mod: stored.mod,
  }))
}

/** Forgets the first ids of a page, unless another has. */
async function forget(desk: Desk, page: EndPage, count: number): Promise<readonly string[]> {
  const ids = page.ids.slice(0, Math.min(count, STEP))
  const rest: Ended = { at: page.at, ids: page.ids.slice(ids.length) }
  for (;;) {
    const draft = desk.session.record.draft('itself')
    draft.count('outcomes', -ids.length)
    const ops: Op[] = ids.map((id) => remove(`${desk.keys.messages}${id}`))
    ops.push(rest.ids.length === 0 ? remove(page.key) : put(page.key, encode(rest)), desk.session.putOf(draft))
    desk.outcomes.forgetOwn()
    const outcome = await desk.session.commit({
      compare: [modIs(page.key, page.mod)],
      success: packed(ops, 40),
      failure: [],
    })
    if (outcome.kind === 'lost') return []
    if (outcome.kind === 'changed') {
      desk.prune()
      continue
    }
    if (outcome.kind === 'done') desk.session.adopt(draft, outcome.revision)
    desk.outcomes.forgot(ids.length)
    return ids
  }
}
