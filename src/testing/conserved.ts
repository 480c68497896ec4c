import type { QueueStats } from '../driver.js'

/** Whether every message that was ever enqueued is somewhere, or has come to an end that was counted. */
export function conserved(stats: QueueStats): boolean {
  const held = stats.ready + stats.delayed + stats.claimed + stats.dead
  const ended = stats.ackedTotal + stats.forwardedTotal + stats.purgedTotal
  const gone = stats.expiredTotal + stats.cancelledTotal + stats.droppedTotal
  return stats.enqueuedTotal === held + ended + gone
}
