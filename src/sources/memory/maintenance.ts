import { DELIVERIES_PER_ATTEMPT } from '../../driver.js'
import { type Message, NEVER } from './message.js'
import { noteFailure, type QueueStore } from './store.js'

/** How many messages one verb moves at most before it does its own work, so that no verb blocks for long. */
export const MAINTENANCE_STEP = 1_000

/**
 * Does what has become due: promotes delayed messages, returns lapsed claims, ends what is past its time to live.
 * Takes things in the order of their instants; answers how many messages it moved, at most `limit`.
 */
export function maintain(store: QueueStore, limit: number): number {
  const { now } = store.clock
  let moved = 0
  for (let next = store.nextAt; moved < limit && next !== NEVER && next <= now; next = store.nextAt) {
    if (store.agenda.first?.instant === next) meetDeadline(store, store.agenda.first)
    else store.promote()
    moved += 1
  }
  return moved
}

function meetDeadline(store: QueueStore, message: Message): void {
  if (message.state === 'claimed') lapse(store, message)
  else expire(store, message)
}

/** Ends a queued message that nobody took in time. */
export function expire(store: QueueStore, message: Message): void {
  store.lift(message)
  if (message.buryExpired) {
    store.bury(message, 'its time to live ran out', message.attempt - 1)
  } else {
    store.totals.expired += 1
    store.end(message, 'expired')
  }
}

/** The lease ran out: the consumer is taken for dead, and its attempt for failed. */
function lapse(store: QueueStore, message: Message): void {
  store.lift(message)
  if (message.cancelRequested) return endCancelled(store, message)
  if (message.taken) {
    store.totals.dropped += 1
    return store.forget(message)
  }
  const reason = `the lease lapsed on attempt ${message.attempt} of ${store.settings.maxDeliveries}`
  noteFailure(message, reason)
  if (failAttempt(store, message, reason)) store.putBack(message)
}

/** Ends a lifted message whose cancel was requested. */
export function endCancelled(store: QueueStore, message: Message): void {
  store.totals.cancelled += 1
  store.end(message, 'cancelled')
}

/** Counts a failed attempt of a lifted message. False if that was its last, and it is a dead letter now. */
export function failAttempt(store: QueueStore, message: Message, reason: string): boolean {
  if (message.attempt >= store.settings.maxDeliveries) {
    store.bury(message, reason, message.attempt)
    return false
  }
  if (!mayBeDeliveredAgain(store, message)) return false
  message.attempt += 1
  return true
}

/** False if a lifted message has been handed over too often, however it came back, and is a dead letter now. */
export function mayBeDeliveredAgain(store: QueueStore, message: Message): boolean {
  if (message.deliveryCount < DELIVERIES_PER_ATTEMPT * store.settings.maxDeliveries) return true
  store.bury(message, `it was handed over ${message.deliveryCount} times without being settled`, message.attempt)
  return false
}
