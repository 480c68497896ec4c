/**
 * Counts sessions that are over in with the base, so that a queue's numbers are not the sum of all sessions that ever were.
 */
import type { Desk, StoredSession } from './desk.js'
import { SessionRecord, sumOf } from './session-record.js'
import { get, modIs, only, put, remove } from './txn.js'

const TRIES = 8
const DEADLINE_MS = 500
/**
 * A session that holds nothing and has changed nothing for so long is over. If it is not, it begins anew with the next
 * change; no request is asked for again after so long.
 */
const SILENT_MS = 30 * 60_000

/** Folds our own session, if it holds nothing any more. */
export async function foldOwn(desk: Desk): Promise<void> {
  const { session } = desk
  for (let attempt = 0; attempt < TRIES && session.mod > 0 && !session.record.holdsClaims; attempt += 1) {
    if (await fold(desk, session)) return
  }
}

/** Folds others that have been silent for long, as far as we have watched them. */
export async function foldSilent(desk: Desk, sessions: readonly StoredSession[]): Promise<void> {
  const at = performance.now()
  const seen = new Map<string, Seen>()
  for (const session of sessions) {
    const { key, mod, record } = session
    if (key === desk.session.key || key === desk.keys.base) continue
    const before = desk.seen.get(key)
    const since = before?.mod === mod ? before.since : at
    seen.set(key, { mod, since })
    if (at - since > SILENT_MS && !record.holdsClaims) await fold(desk, session)
  }
  desk.seen = seen
}

/** Since when a session has not changed. */
export interface Seen {
  readonly mod: number
  readonly since: number
}

/** Whether it is done. Else the base and our own session are as they are stored. */
async function fold(desk: Desk, { key, mod, record }: Omit<StoredSession, 'name'>): Promise<boolean> {
  const { base, keys, session } = desk
  const sum = new SessionRecord(0, sumOf([record, base.record]), new Map())
  const reply = await desk.host.client().txn(
    {
      compare: [modIs(key, mod), modIs(keys.base, base.mod)],
      success: [put(keys.base, sum.encode()), remove(key)],
      failure: [get(keys.base), get(session.key)],
    },
    DEADLINE_MS,
  )
  if (reply.succeeded) desk.base = { mod: reply.revision, record: sum }
  else {
    desk.noteBase(only(reply.results[0]))
    if (key === session.key) session.adoptStored(only(reply.results[1]))
  }
  return reply.succeeded
}
