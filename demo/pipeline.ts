/** The audit as a pipeline between two queues: packages in, audits out. */
import { resolve } from 'node:path'
import {
  type Backend,
  deadLetter,
  mergeMap,
  pipe,
  Queue,
  type QueueStats,
  retryLater,
  run,
  type Summary,
} from 'millrace'
import { type Audit, AuditError, audit } from './audit.js'
import { findPackages } from './packages.js'
import type { Progress } from './progress.js'

/** A package to audit. */
export interface Package {
  /** Absolute, since the run that goes on with it may be started elsewhere. */
  readonly folder: string
  /** Relative to the audited folder: what people know it by. */
  readonly path: string
}

export interface Queues {
  readonly packages: Queue<Package>
  readonly audits: Queue<Audit>
}

export interface Stops {
  /** Takes nothing more on, and gives what runs the grace to end. */
  readonly stop: AbortSignal
  /** Skips the grace. */
  readonly kill: AbortSignal
}

/** Where every package is. `found` is the sum of the others. */
export interface Account {
  readonly found: number
  readonly audited: number
  readonly refused: number
  readonly left: number
}

const GRACE_MS = 5_000

export function openQueues(backend: Backend): Queues {
  return { packages: new Queue('packages', { backend }), audits: new Queue('audits', { backend }) }
}

/** Goes on with what an earlier run left in the store, if it left anything; otherwise looks for packages anew. */
export async function fill({ packages, audits }: Queues, dir: string, signal: AbortSignal): Promise<'new' | 'resumed'> {
  if (leftOf(await packages.stats()) > 0) return 'resumed'
  const paths = await findPackages(dir, signal)
  await packages.deadLetters.purgeAll()
  await audits.purge()
  await packages.enqueueAll(paths.map((path) => ({ payload: { folder: resolve(dir, path), path } })))
  return 'new'
}

/** Audits until nothing is left, or until it is told to stop. */
export async function auditAll(
  { packages, audits }: Queues,
  lanes: number,
  stops: Stops,
  progress: Progress,
): Promise<Summary> {
  const source = packages.source({ until: 'idle' })
  const settled = source.events.subscribe((event) => {
    if (event.type === 'settled' && (event.as === 'acked' || event.as === 'dead-lettered')) progress.step()
  })
  try {
    return await run(
      pipe(
        source,
        retryLater({ baseMs: 200, maxMs: 5_000 }),
        deadLetter({ when: (error) => error instanceof AuditError }),
        // The audit is stored in the same atomic step that acks the package: a crash loses none and doubles none.
        mergeMap(async (d) => d.forward(audits, await audit(d.payload.folder, d.signal)), lanes),
      ),
      { signal: stops.stop, killSignal: stops.kill, graceMs: GRACE_MS },
    )
  } finally {
    settled.unsubscribe()
    progress.end()
  }
}

export async function takeStock({ packages, audits }: Queues): Promise<Account> {
  const stats = await packages.stats()
  const audited = await audits.size()
  const left = leftOf(stats)
  return { found: audited + stats.dead + left, audited, refused: stats.dead, left }
}

function leftOf({ ready, delayed, claimed }: QueueStats): number {
  return ready + delayed + claimed
}
