/**
 * Counts sessions that are over in with the base, so that a queue's numbers are not the sum of all sessions that ever were.
 */
import type { KeyValue } from './client.js'
import type { Desk } from './desk.js'
import { SessionRecord, sumOf } from './session-record.js'
import { get, modIs, only, put, remove } from './txn.js'

/** The name of the session that stands for all that are over. */
const BASE = '0'

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
    if (await fold(desk, session.key, session.mod, session.record)) return
  }
}

/** Folds others that have been silent for long, as far as we have watched them. */
export async function foldSilent(desk: Desk, sessions: readonly KeyValue[]): Promise<void> {
  const at = performance.now()
  const seen = new Map<string, Seen>()
  for (const { key, mod, value } of sessions) {
    if (key === desk.session.key || key === baseKeyOf(desk)) continue
    const before = desk.seen.get(key)
    const since = before?.mod === mod ? before.since : at
    seen.set(key, { mod, since })
    const record = SessionRecord.decode(value)
    if (at - since > SILENT_MS && !record.holdsClaims) await fold(desk, key, mod, record)
  }
  desk.seen = seen
}

/** Since when a session has not changed. */
export interface Seen {
  readonly mod: number
  readonly since: number
}

function baseKeyOf({ keys }: Desk): string {
  return `${keys.sessions}${BASE}`
}

async function fold(desk: Desk, key: string, mod: number, record: SessionRecord): Promise<boolean> {
  const baseKey = baseKeyOf(desk)
  const base = only((await desk.read(get(baseKey))).results[0])
  const records = base ? [record, SessionRecord.decode(base.value)] : [record]
  const sum = new SessionRecord(0, sumOf(records), new Map())
  const reply = await desk.host.client().txn(
    {
      compare: [modIs(key, mod), modIs(baseKey, base?.mod ?? 0)],
      success: [put(baseKey, sum.encode()), remove(key)],
      failure: [],
    },
    DEADLINE_MS,
  )
  return reply.succeeded
}
