import type { CancelReply, PurgeState, QueueStats, StoredOutcome } from '../../driver.js'
import { endCancelled } from './maintenance.js'
import type { Message } from './message.js'
import type { QueueStore } from './store.js'

/** The counts of a queue, whatever its depth at the same cost. */
export function statsOf(store: QueueStore): QueueStats {
  const { totals } = store
  const oldest = store.ready.oldest
  return {
    ready: store.ready.size,
    delayed: store.delayed.size,
    claimed: store.claims.size,
    dead: store.dead.size,
    oldestReadyAgeMs: oldest === undefined ? 0 : Math.max(0, store.clock.now - oldest.arrivedAt),
    paused: store.paused,
    enqueuedTotal: totals.enqueued,
    ackedTotal: totals.acked,
    forwardedTotal: totals.forwarded,
    purgedTotal: totals.purged,
    expiredTotal: totals.expired,
    cancelledTotal: totals.cancelled,
    droppedTotal: totals.dropped,
  }
}

/** What is known of the end of a message. With `watch`, a hint will tell when it has come. */
export function outcomeOf(store: QueueStore, id: string, watch: boolean): StoredOutcome {
  const message = store.find(id)
  if (message === undefined) return { state: 'unknown' }
  switch (message.state) {
    case 'done':
      return message.notes?.result === undefined ? { state: 'done' } : { state: 'done', result: message.notes.result }
    case 'dead':
    case 'dead-elsewhere':
      return { state: 'dead', reason: message.notes?.reason ?? '' }
    case 'cancelled':
    case 'expired':
      return { state: message.state }
    default:
      if (watch) message.watched = true
      return { state: 'pending' }
  }
}

/** Cancels a queued message at once, and asks for the cancel of a claimed one. */
export function cancelMessage(store: QueueStore, id: string): CancelReply {
  const message = store.find(id)
  switch (message?.state) {
    case undefined:
      return 'unknown'
    case 'ready':
    case 'delayed':
      store.lift(message as Message)
      endCancelled(store, message as Message)
      return 'cancelled'
    case 'claimed':
      ;(message as Message).cancelRequested = true
      store.hints.add({ kind: 'cancel', id })
      return 'cancelling'
    default:
      return 'finished'
  }
}

/** Drops up to `limit` messages in the given states, and answers how many it dropped. */
export function purgeStates(store: QueueStore, states: readonly PurgeState[], limit: number): number {
  let purged = 0
  for (const state of states) {
    for (let next = firstIn(store, state); next !== undefined && purged < limit; next = firstIn(store, state)) {
      purge(store, next)
      purged += 1
    }
  }
  return purged
}

/** Drops a message for good; its id is free again. */
export function purge(store: QueueStore, message: Message): void {
  store.lift(message)
  store.totals.purged += 1
  store.forget(message)
}

/** The dead letter of an id. */
export function findDead(store: QueueStore, id: string): Message | undefined {
  const message = store.find(id)
  return message?.state === 'dead' ? message : undefined
}

function firstIn(store: QueueStore, state: PurgeState): Message | undefined {
  switch (state) {
    case 'ready':
      return store.ready.first
    case 'delayed':
      return store.delayed.first
    case 'claimed':
      return store.claims.first
    case 'dead':
      return store.dead.first
  }
}
