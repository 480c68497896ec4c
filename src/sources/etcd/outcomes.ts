/**
 * How messages ended, as long as that is kept. The ids that ended in one transaction are one page, so keeping them costs a
 * write for all; a page that is too old, or too much, goes with what is stored under its ids.
 */

import type { Change } from './change.js'
import type { Compare, KeyValue, Op, TxnReply } from './client.js'
import type { Desk } from './desk.js'
import { endOf } from './keys.js'
import type { EndedPage } from './outcome-count.js'
import { decode, encode } from './record.js'
import { now } from './time.js'
import { modIs, packed, put, range, remove } from './txn.js'

/** How many ids one transaction forgets. */
const STEP = 100
/** How many pages of a session one transaction cuts: it compares them. */
const MAX_PAGES = 60
/** How many of our own go along with other changes: the claims beside them take nearly all conditions of a path. */
const MAX_ALONG = 19
/** How many sessions are looked at. */
const SESSIONS = 256
/** How many of our own ends may pass at most before others' are counted again. */
const UNCOUNTED = 1_000

export interface Ended {
  readonly at: number
  readonly ids: readonly string[]
}

/** Forgets what is past its retention, if anything can be. Answers the ids that are free again. */
export async function forgetOutlived(desk: Desk): Promise<Set<string>> {
  const forgotten = new Set<string>()
  const began = now()
  const until = began - desk.meta.settings.retention.outcomesMs
  if (desk.outcomes.oldestAt > until) return forgotten
  const oldest = await oldestPages(desk)
  if (oldest.length < SESSIONS) desk.outcomes.oldestAt = Math.min(began, ...oldest.map(({ at }) => at))
  for (const first of oldest) {
    for (const id of await forgetFrom(desk, first, until, () => STEP)) forgotten.add(id)
  }
  return forgotten
}

/** Whether any outcome is kept. */
export function endsOp({ keys }: Desk): Op {
  return { kind: 'get', key: keys.ends, end: endOf(keys.ends), limit: 1, keysOnly: true }
}

/** What goes of pages when some of their ids are forgotten, the first ones first. */
export interface Cut {
  readonly pages: readonly EndedPage[]
  readonly ids: readonly string[]
  /** What is left of the last page, if anything is. */
  readonly rest: Ended | undefined
}

/** Of those that have ended until then the first, at most so many. */
function cutOff(all: readonly EndedPage[], untilAt: number, count: number, most = MAX_PAGES): Cut {
  const pages: EndedPage[] = []
  const ids: string[] = []
  for (const page of all) {
    if (ids.length >= count || page.at > untilAt || pages.length === most) break
    const some = page.ids.slice(0, count - ids.length)
    pages.push(page)
    ids.push(...some)
    const rest = page.ids.slice(some.length)
    if (rest.length > 0) return { pages, ids, rest: { at: page.at, ids: rest } }
  }
  return { pages, ids, rest: undefined }
}

const NOTHING: Cut = { pages: [], ids: [], rest: undefined }

function cutOps({ keys }: Desk, { pages, ids, rest }: Cut): Op[] {
  const last = rest && pages.at(-1)
  return [
    ...ids.map((id) => remove(`${keys.messages}${id}`)),
    ...pages.map((page) => (page === last ? put(page.key, encode(rest)) : remove(page.key))),
  ]
}

/** What a cut rests on. */
export function cutCompare({ pages }: Cut): Compare[] {
  return pages.map(({ key, mod }) => modIs(key, mod))
}

/**
 * Forgets as many of our own oldest outcomes as are too many with those that a change adds, as part of that change: so a
 * queue that ends messages all the time needs no transactions to forget them. What is older than ours goes before them.
 */
export function trimOwn(desk: Desk, change: Change): Cut {
  const { known, own, othersAt } = desk.outcomes
  const excess = Math.min((known ?? 0) + change.outcomes.length - desk.meta.settings.retention.maxOutcomes, STEP)
  const cut = cutOff(own, othersAt, excess, MAX_ALONG)
  change.ops.push(...cutOps(desk, cut))
  change.record.count('outcomes', -cut.ids.length)
  return cut
}

interface Revised {
  readonly revision: number
}

/** A change was made at this revision, with what was cut off along. */
export function noteEnded(desk: Desk, change: Change, { revision }: Revised, cut = NOTHING): void {
  const { outcomes } = desk
  forgotten(desk, cut, revision)
  if (change.outcomes.length > 0) {
    outcomes.own.push({ key: change.endsKey, mod: revision, at: change.now, ids: change.outcomes })
  }
  outcomes.ended(change.outcomes.length)
}

/** What was cut off is gone, at this revision. */
function forgotten({ outcomes }: Desk, { pages, ids, rest }: Cut, revision: number): void {
  if (pages.length === 0) return
  const last = rest && pages.at(-1)
  const kept =
    last && outcomes.own.some(({ key }) => key === last.key) ? [{ ...rest, key: last.key, mod: revision }] : []
  const gone = new Set(pages.map(({ key }) => key))
  outcomes.own = [...kept, ...outcomes.own.filter(({ key }) => !gone.has(key))]
  outcomes.forgot(ids.length)
}

/** Counts the outcomes of all sessions now and then, and forgets the oldest where there are more than are to be kept. */
export async function trimOutcomes(desk: Desk): Promise<void> {
  const { maxOutcomes } = desk.meta.settings.retention
  const count = desk.outcomes
  if (count.known === undefined || count.since >= Math.max(1, Math.min(UNCOUNTED, maxOutcomes / 10)))
    await recount(desk)
  if ((count.known ?? 0) <= maxOutcomes + leeway(desk)) return
  // Others may have forgotten some since.
  if (count.since > 0) await recount(desk)
  while ((count.known ?? 0) > maxOutcomes) {
    const [oldest, next] = (await oldestPages(desk)).toSorted((one, other) => one.at - other.at)
    if (oldest === undefined) return
    const untilAt = next?.at ?? Number.POSITIVE_INFINITY
    await forgetFrom(desk, oldest, untilAt, () => (count.known ?? 0) - maxOutcomes)
  }
}

/** How many more may be kept for now: what our next change can forget, or what is not worth a transaction. */
function leeway({ outcomes, meta }: Desk): number {
  const [oldest] = outcomes.own
  const isNext = oldest !== undefined && oldest.at <= outcomes.othersAt
  return isNext ? STEP : Math.min(STEP, Math.floor(meta.settings.retention.maxOutcomes / 10))
}

/** Counts those of all sessions, and looks which are the oldest but ours. */
async function recount(desk: Desk): Promise<void> {
  const { results } = await desk.read(desk.sessionsOp())
  const { outcomes, meta } = desk
  const began = now()
  outcomes.known = desk.countsIn(results[0]).outcomes
  outcomes.since = 0
  if (outcomes.known < meta.settings.retention.maxOutcomes / 2) return
  const others = (await oldestPages(desk)).filter(({ key }) => key !== outcomes.own[0]?.key)
  outcomes.othersAt = Math.min(began, ...others.map(({ at }) => at))
}

/** The oldest page of each session. */
async function oldestPages(desk: Desk): Promise<EndedPage[]> {
  const { ends } = desk.keys
  const pages: EndedPage[] = []
  let from = ends
  while (pages.length < SESSIONS) {
    const [page] = pagesIn(await desk.read(range(from, endOf(ends), 1)))
    if (page === undefined) break
    pages.push(page)
    from = afterSession(page.key)
  }
  return pages
}

function afterSession(key: string): string {
  return `${key.slice(0, key.lastIndexOf('/'))}0`
}

function pagesIn({ results }: TxnReply): EndedPage[] {
  return (results[0]?.kvs ?? []).map((stored: KeyValue) => ({
    ...decode<Ended>(stored.value, 'a page of outcomes'),
    key: stored.key,
    mod: stored.mod,
  }))
}

/** Forgets those of one session that have ended until then, from a page on, as many as may go. Answers their ids. */
async function forgetFrom(desk: Desk, first: EndedPage, untilAt: number, most: () => number): Promise<string[]> {
  const forgotten: string[] = []
  for (;;) {
    const count = Math.min(most(), STEP)
    if (count <= 0) return forgotten
    const pages = pagesIn(await desk.read(range(first.key, afterSession(first.key), MAX_PAGES)))
    const cut = cutOff(pages, untilAt, count)
    if (cut.ids.length === 0) return forgotten
    if (await forget(desk, cut)) forgotten.push(...cut.ids)
    else await recount(desk)
  }
}

/** False if another has changed the pages. */
async function forget(desk: Desk, cut: Cut): Promise<boolean> {
  for (;;) {
    const draft = desk.session.record.draft('itself')
    draft.count('outcomes', -cut.ids.length)
    const outcome = await desk.session.commit({
      compare: cutCompare(cut),
      success: packed([...cutOps(desk, cut), desk.session.putOf(draft)], 40),
      failure: [],
    })
    if (outcome.kind !== 'done') desk.outcomes.forgetOwn()
    if (outcome.kind === 'lost') return false
    if (outcome.kind === 'changed') {
      desk.prune()
      continue
    }
    if (outcome.kind === 'done') desk.session.adopt(draft, outcome.revision)
    forgotten(desk, cut, outcome.revision)
    return true
  }
}
