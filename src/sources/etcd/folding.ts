/**
 * Counts a session that is over in with the base, so that a queue's numbers are not the sum of all sessions that ever were.
 */
import type { Desk } from './desk.js'
import { SessionRecord, sumOf } from './session-record.js'
import { get, modIs, only, put, remove } from './txn.js'

/** The name of the session that stands for all that are over. */
export const BASE = '0'

const TRIES = 8
const DEADLINE_MS = 500

/** Folds our own session, if it holds nothing any more. */
export async function foldOwn(desk: Desk): Promise<void> {
  const { session, keys } = desk
  const baseKey = `${keys.sessions}${BASE}`
  for (let attempt = 0; attempt < TRIES && session.mod > 0 && !session.record.holdsClaims; attempt += 1) {
    const { results } = await desk.read(get(baseKey))
    const base = only(results[0])
    const records = base ? [session.record, SessionRecord.decode(base.value)] : [session.record]
    const sum = new SessionRecord(0, sumOf(records), new Map())
    const reply = await desk.host.client().txn(
      {
        compare: [modIs(session.key, session.mod), modIs(baseKey, base?.mod ?? 0)],
        then: [put(baseKey, sum.encode()), remove(session.key)],
        otherwise: [],
      },
      DEADLINE_MS,
    )
    if (reply.succeeded) return
  }
}
