/**
 * Brings back what consumers held that are gone: claims whose lease has no marker any more.
 */

import { pageKey } from './change.js'
import type { KeyValue, Op, Result } from './client.js'
import type { Desk } from './desk.js'
import { type EntryRow, entryOf } from './entry.js'
import { foldSilent } from './folding.js'
import { endOf } from './keys.js'
import type { Page } from './page.js'
import { decode } from './record.js'
import { SessionRecord, sumOf } from './session-record.js'
import { absent, get, modIs, only, packed, put, range } from './txn.js'

/** How many claims one transaction brings back. */
const STEP = 40
const DEADLINE_MS = 2_000

/** A consumer that finds nothing looks for what others have left, at most once in so long. */
const EVERY_MS = 1_000

/** Whether anything was brought back. */
export async function recoverNowAndThen(desk: Desk): Promise<boolean> {
  if (performance.now() - desk.recoveredAt < EVERY_MS) return false
  return (await recoverOthers(desk)) > 0
}

/** Brings back all claims of others whose lease is gone; answers how many. */
export async function recoverOthers(desk: Desk): Promise<number> {
  const { results } = await desk.read(get(desk.keys.meta), ...ownersOps(desk))
  desk.noteMeta(only(results[0]))
  return recoverFrom(desk, results.slice(1))
}

/** What {@link recoverFrom} takes. */
export function ownersOps(desk: Desk): Op[] {
  const { keys } = desk
  return [range(keys.lives, endOf(keys.lives)), desk.sessionsOp()]
}

/** Brings back all claims of others whose lease is gone, by what was just read; answers how many. */
export async function recoverFrom(desk: Desk, [lives, sessions]: readonly Result[]): Promise<number> {
  const { keys } = desk
  desk.recoveredAt = performance.now()
  desk.outcomes.known = sumOf(desk.recordsIn(sessions)).outcomes
  const live = new Set((lives?.kvs ?? []).map(({ key }) => key.slice(keys.lives.length)))
  let moved = 0
  for (const stored of sessions?.kvs ?? []) {
    const session = stored.key.slice(keys.sessions.length)
    if (session !== desk.session.name) moved += await recoverSession(desk, session, stored, live)
  }
  await foldSilent(desk, sessions?.kvs ?? [])
  return moved
}

async function recoverSession(
  desk: Desk,
  session: string,
  stored: KeyValue,
  live: ReadonlySet<string>,
): Promise<number> {
  let moved = 0
  let record = SessionRecord.decode(stored.value)
  let mod = stored.mod
  for (;;) {
    const over = [...record.pages].find(([, { lease }]) => !live.has(lease))
    if (over === undefined) return moved
    const [page, { lease }] = over
    const reply = await recoverPage(desk, session, { record, mod, page, lease })
    moved += reply.moved
    if (reply.record === undefined) return moved
    record = reply.record
    mod = reply.mod
  }
}

interface Over {
  readonly record: SessionRecord
  readonly mod: number
  readonly page: number
  readonly lease: string
}

interface Recovered {
  readonly moved: number
  /** Absent where another has changed the session: whoever that was sees to the rest. */
  readonly record?: SessionRecord
  readonly mod: number
}

async function recoverPage(desk: Desk, session: string, { record, mod, page, lease }: Over): Promise<Recovered> {
  const { keys } = desk
  const { results } = await desk.read(get(pageKey(keys, session, page)))
  const stored = only(results[0])
  const draft = record.draft('another')
  const change = desk.changeOf(session, draft)
  const indices = record.liveIn(page).slice(0, STEP)
  const held = stored && decode<Page>(stored.value, 'a page of claims')
  for (const index of indices) {
    const row = held?.rows[index]
    change.settleClaim(page, index)
    if (held && row) {
      change.lapse(
        entryOf(row as EntryRow),
        held.taken,
        record.isCancelRequested(page, index),
        held.places[index] ?? '',
      )
    } else draft.count('dropped')
  }
  const key = `${keys.sessions}${session}`
  const ops = [...change.finished(), put(key, draft.encode())]
  const compare = [modIs(key, mod), absent(`${keys.lives}${lease}`), modIs(keys.meta, desk.meta.mod)]
  const reply = await desk.host.client().txn({ compare, success: packed(ops, 20), failure: [] }, DEADLINE_MS)
  return reply.succeeded ? { moved: indices.length, record: draft, mod: reply.revision } : { moved: 0, mod: 0 }
}
