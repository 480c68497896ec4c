/**
 * When a source with an end has come to it.
 */
import type { ClaimReply } from '../driver.js'
import { Eventual } from '../eventual.js'
import type { Hub } from './hub.js'

/**
 * - `'empty'`: nothing is ready and nothing of its own is in flight.
 * - `'idle'`: also nothing is delayed, and nothing is claimed by anybody.
 * - `'try'`: after one answer.
 */
export type Until = 'empty' | 'idle' | 'try'

/** Whether a consumer that just found less than it asked for has come to its end. A paused queue is not empty. */
export function ends(until: Until, reply: ClaimReply, hub: Hub, quiet: () => boolean): Eventual<boolean> {
  if (!quiet()) return Eventual.resolved(false)
  if (until === 'empty' && !reply.paused) return Eventual.resolved(true)
  return hub
    .request(() => hub.driver.stats())
    .then(({ ready, delayed, claimed }) => {
      const left = until === 'empty' ? ready : ready + delayed + claimed
      return left === 0
    })
}
