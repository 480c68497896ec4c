/**
 * Renewals. A claim is as live as the lease that keeps it and as our own clock says: so a renewal is a sign of life for the
 * lease, and a look at the session's record, in which others may have changed something. It writes nothing.
 */
import type { Renewal, RenewResult } from '../../driver.js'
import { BackendUnavailableError } from '../../errors.js'
import { pageKey } from './change.js'
import type { Op } from './client.js'
import type { Desk, Held } from './desk.js'
import { entryRow } from './entry.js'
import type { Job } from './lane.js'
import type { Holder } from './leases.js'
import { leaseFor, type Page } from './page.js'
import { encode } from './record.js'
import { now } from './time.js'
import { get, only, packed, present, put } from './txn.js'

export type RenewInput = readonly Renewal[]

const STALE: RenewResult = { state: 'stale', leaseMs: 0, leaseExpiresAt: 0 }

export async function renew(desk: Desk, jobs: readonly Job<RenewInput, readonly RenewResult[]>[]): Promise<void> {
  const renewals = jobs.flatMap(({ input }) => input)
  await lookAgain(desk)
  const holders = new Set(renewals.flatMap(({ id, token }) => desk.live(id, token)?.holder ?? []))
  await Promise.all([...holders].map((holder) => confirm(desk, holder)))
  await moveLonger(desk, renewals)
  await showProgress(desk, renewals)
  for (const { input, asked } of jobs) asked.succeed(input.map((renewal) => renewed(desk, renewal)))
  desk.host.onClaims()
}

/** The record as others may have changed it. */
async function lookAgain(desk: Desk): Promise<void> {
  const { session } = desk
  const stored = only((await desk.read(get(session.key))).results[0])
  if ((stored?.mod ?? 0) === session.mod) return
  session.adoptStored(stored)
  desk.prune()
}

async function confirm(desk: Desk, holder: Holder): Promise<void> {
  const confirmed = await desk.leases.refresh(holder)
  if (!confirmed && holder.isLive) throw new BackendUnavailableError('the lease of the consumer was not confirmed')
}

function renewed(desk: Desk, { id, token, leaseMs }: Renewal): RenewResult {
  const held = desk.live(id, token)
  if (held === undefined) return STALE
  const granted = leaseFor(leaseMs)
  held.until = performance.now() + granted
  const cancelled = desk.session.record.isCancelRequested(held.page, held.index)
  return { state: cancelled ? 'cancelled' : 'renewed', leaseMs: granted, leaseExpiresAt: now() + granted }
}

/** A claim that is to live longer than its lease would without us goes over to a longer one. */
async function moveLonger(desk: Desk, renewals: readonly Renewal[]): Promise<void> {
  const longer = renewals.flatMap(({ id, token, leaseMs }) => {
    const held = desk.live(id, token)
    return held && leaseFor(leaseMs) > held.holder.ttlMs ? [{ held, seconds: longTtl(leaseMs) }] : []
  })
  for (const { held, seconds } of longer) await move(desk, held, await desk.leases.need(seconds))
}

/** Few different ones, so that extensions of all lengths do not each need a lease. */
function longTtl(leaseMs: number): number {
  return 2 ** Math.ceil(Math.log2(leaseFor(leaseMs) / 1_000))
}

async function move(desk: Desk, held: Held, holder: Holder): Promise<void> {
  const { session, keys } = desk
  const draft = session.record.draft('itself')
  const change = desk.change(draft)
  const { page: from, index, entry, place, taken } = held
  const cancelled = draft.isCancelRequested(from, index) ? 1n : 0n
  change.settleClaim(from, index)
  draft.count('claimed')
  draft.pages.set(draft.turn, { lease: holder.id, size: 1, settled: 0n, cancelled })
  const page: Page = {
    consumer: held.consumer,
    taken,
    leaseMs: holder.ttlMs,
    at: now(),
    rows: [entryRow(entry)],
    places: [place],
  }
  const ops: Op[] = [
    ...change.finished(),
    put(pageKey(keys, session.name, draft.turn), encode(page)),
    session.putOf(draft),
  ]
  const outcome = await session.commit({
    compare: [present(`${keys.lives}${holder.id}`)],
    success: packed(ops, 20),
    failure: [],
  })
  if (outcome.kind === 'done') session.adopt(draft, outcome.revision)
  if (outcome.kind === 'done' || outcome.kind === 'repeated') {
    desk.claims.set(held.token, {
      ...held,
      page: draft.turn,
      index: 0,
      holder,
      until: performance.now() + holder.ttlMs,
    })
  }
  desk.prune()
}

async function showProgress(desk: Desk, renewals: readonly Renewal[]): Promise<void> {
  const ops = renewals.flatMap(({ id, token, progress }) => {
    const held = progress && desk.live(id, token)
    if (!held) return []
    return [put(`${pageKey(desk.keys, desk.session.name, held.page)}/${held.index}`, Buffer.from(progress))]
  })
  if (ops.length === 0) return
  const draft = desk.session.record.draft('itself')
  const outcome = await desk.session.commit({
    compare: [],
    success: packed([...ops, desk.session.putOf(draft)], 20),
    failure: [],
  })
  if (outcome.kind === 'done') desk.session.adopt(draft, outcome.revision)
  desk.prune()
}
