/**
 * The numbers of a queue.
 */
import type { QueueStats } from '../../driver.js'
import type { Desk } from './desk.js'
import { isDue } from './maintenance.js'
import { candidatesIn, type Front, oldestBehind } from './oldest.js'
import type { Counts } from './session-record.js'
import { now } from './time.js'
import { get } from './txn.js'

/** So many of the first ready messages are read with the numbers. */
const FRONT = 16

/** All numbers of the queue, after what is due was done. */
export async function statsOf(desk: Desk, doDue: () => Promise<unknown>): Promise<QueueStats> {
  const first = await readNumbers(desk)
  if (!isDue(first.dueAt)) return statsFrom(desk, first)
  await doDue()
  return statsFrom(desk, await readNumbers(desk))
}

interface Numbers {
  readonly sum: Counts
  readonly front: Front
  readonly dueAt: number
}

async function readNumbers(desk: Desk): Promise<Numbers> {
  const { op, isWhole } = desk.head.frontOp(FRONT)
  const { results } = await desk.read(get(desk.keys.meta), desk.sessionsOp(), op, ...desk.head.dueOps())
  const { kvs = [], more = false } = results[2] ?? {}
  const front = { candidates: candidatesIn(kvs), isAll: isWhole && !more }
  return { sum: desk.countsIn(results[1]), front, dueAt: desk.head.dueIn(results.slice(3)) }
}

async function statsFrom(desk: Desk, { sum, front }: Numbers): Promise<QueueStats> {
  const oldest = sum.ready > 0 ? await oldestBehind(desk, front) : undefined
  return {
    ready: sum.ready,
    delayed: sum.delayed,
    claimed: sum.claimed,
    dead: sum.dead,
    oldestReadyAgeMs: oldest === undefined ? 0 : Math.max(0, now() - oldest.entry.arrivedAt),
    paused: desk.meta.paused,
    enqueuedTotal: sum.enqueued,
    ackedTotal: sum.acked,
    forwardedTotal: sum.forwarded,
    purgedTotal: sum.purged,
    expiredTotal: sum.expired,
    cancelledTotal: sum.cancelled,
    droppedTotal: sum.dropped,
  }
}
