/** The audit as a pipeline on one queue: a message for each package, whose outcome is what its audit has found. */
import { createHash } from 'node:crypto'
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

export type Packages = Queue<Package>

export interface Stops {
  /** Takes nothing more on, and gives what runs the grace to end. */
  readonly stop: AbortSignal
  /** Skips the grace. */
  readonly kill: AbortSignal
}

/** What there is to audit. */
export interface Plan {
  /** Whether an earlier run had begun with it. */
  readonly resumed: boolean
  /** All packages that are installed now. */
  readonly paths: readonly string[]
}

/** Where every package is. `found` is the sum of the others. */
export interface Account {
  readonly found: number
  readonly audited: number
  readonly refused: number
  readonly left: number
}

const GRACE_MS = 5_000
/** The claims of a killed run come back after this long, and a run that goes on should not be seen to wait for them. */
const LEASE_MS = 2_000
/** An audit is over when it is reported, not when a time or a number is reached: until then its outcomes are kept. */
const RETENTION = { outcomesMs: Number.MAX_SAFE_INTEGER, maxOutcomes: Number.MAX_SAFE_INTEGER }
/** Packages that are enqueued, or looked up, in one go. */
const SLICE = 500
const LONGEST_ID_BYTES = 512

export function openPackages(backend: Backend): Packages {
  return new Queue('packages', { backend, leaseMs: LEASE_MS, retention: RETENTION })
}

/**
 * Enqueues every package that is installed. Those of an earlier run, whether done or not, are duplicates and stay what
 * they are; so it does not matter where that run was ended, not even in here.
 */
export async function fill(packages: Packages, dir: string, signal: AbortSignal): Promise<Plan> {
  const { enqueuedTotal } = await packages.stats()
  const paths = await findPackages(dir, signal)
  for (const slice of slices(paths)) {
    signal.throwIfAborted()
    await packages.enqueueAll(slice.map((path) => ({ id: idOf(path), payload: { folder: resolve(dir, path), path } })))
  }
  return { resumed: enqueuedTotal > 0, paths }
}

/** Audits until nothing is left, or until it is told to stop. */
export async function auditAll(packages: Packages, lanes: number, stops: Stops, progress: Progress): Promise<Summary> {
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
        mergeMap((d) => audit(d.payload.folder, d.signal), lanes, { storeResult: true }),
      ),
      { signal: stops.stop, killSignal: stops.kill, graceMs: GRACE_MS },
    )
  } finally {
    settled.unsubscribe()
    progress.end()
  }
}

/** What was found in these packages so far, by whichever run. */
export async function auditsOf(packages: Packages, paths: readonly string[]): Promise<Audit[]> {
  const audits: Audit[] = []
  for (const slice of slices(paths)) {
    const outcomes = await Promise.all(slice.map((path) => packages.outcome(idOf(path), { timeoutMs: 0 })))
    for (const outcome of outcomes) if (outcome.state === 'done') audits.push(outcome.result as Audit)
  }
  return audits
}

/** The store is made anew for each audit, so the totals of the queue are those of the audit. */
export async function takeStock(packages: Packages): Promise<Account> {
  const stats = await packages.stats()
  const left = leftOf(stats)
  return { found: stats.ackedTotal + stats.dead + left, audited: stats.ackedTotal, refused: stats.dead, left }
}

function leftOf({ ready, delayed, claimed }: QueueStats): number {
  return ready + delayed + claimed
}

/** The path, or what stands for one that no queue takes as an id: deep nests have long ones. */
function idOf(path: string): string {
  const bytes = Buffer.from(path)
  const fits = bytes.byteLength <= LONGEST_ID_BYTES && bytes.toString() === path
  return fits ? path : createHash('sha256').update(path, 'utf16le').digest('hex')
}

function* slices<T>(items: readonly T[]): Iterable<T[]> {
  for (let from = 0; from < items.length; from += SLICE) yield items.slice(from, from + SLICE)
}
