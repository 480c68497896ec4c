/**
 * Brings back what consumers held that are gone: claims whose lease has no marker any more.
 */

import { pageKey } from './change.js'
import type { Op, Result } from './client.js'
import type { Desk, StoredSession } from './desk.js'
import { type EntryRow, entryOf } from './entry.js'
import { foldSilent } from './folding.js'
import { endOf } from './keys.js'
import type { Page } from './page.js'
import { decode } from './record.js'
import { sumOf } from './session-record.js'
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
  const all = desk.sessionsIn(sessions)
  desk.outcomes.known = sumOf(all.map(({ record }) => record)).outcomes
  const live = new Set((lives?.kvs ?? []).map(({ key }) => key.slice(keys.lives.length)))
  let moved = 0
  for (const session of all) {
    if (session.key !== desk.session.key) moved += await recoverSession(desk, session, live)
  }
  await foldSilent(desk, all)
  return moved
}

async function recoverSession(desk: Desk, stored: StoredSession, live: ReadonlySet<string>): Promise<number> {
  let moved = 0
  let session: StoredSession | undefined = stored
  while (session) {
    const over = [...session.record.pages].find(([, { lease }]) => !live.has(lease))
    if (over === undefined) break
    const [page, { lease }] = over
    const recovered = await recoverPage(desk, session, page, lease)
    moved += recovered.moved
    session = recovered.session
  }
  return moved
}

interface Recovered {
  readonly moved: number
  /** Absent where another has changed the session: whoever that was sees to the rest. */
  readonly session?: StoredSession
}

async function recoverPage(desk: Desk, session: StoredSession, page: number, lease: string): Promise<Recovered> {
  const { keys } = desk
  const { record, key, mod } = session
  const { results } = await desk.read(get(pageKey(keys, session.name, page)))
  const stored = only(results[0])
  const draft = record.draft('another')
  const change = desk.changeOf(session.name, draft)
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
  const ops = [...change.finished(), put(key, draft.encode())]
  const compare = [modIs(key, mod), absent(`${keys.lives}${lease}`), modIs(keys.meta, desk.meta.mod)]
  const reply = await desk.host.client().txn({ compare, success: packed(ops, 20), failure: [] }, DEADLINE_MS)
  if (!reply.succeeded) return { moved: 0 }
  return { moved: indices.length, session: { ...session, record: draft, mod: reply.revision } }
}
