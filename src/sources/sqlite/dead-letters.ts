import { makeRoom } from './admission.js'
import { findDead, purge } from './inspection.js'
import { type Message, revive } from './message.js'
import type { QueueRow } from './queue-row.js'
import type { Transaction } from './transaction.js'

/** Brings all dead letters of these ids back, or throws if there is no room for all. For each id whether it was dead. */
export function reviveDead(tx: Transaction, queue: QueueRow, ids: readonly string[]): boolean[] {
  const dead = new Map<string, Message>()
  for (const id of ids) {
    const message = findDead(tx, queue, id)
    if (message !== undefined) dead.set(id, message)
  }
  let bytes = 0
  for (const { size } of dead.values()) bytes += size
  makeRoom(tx, queue, dead.size, bytes)
  for (const message of dead.values()) revive(tx, queue, message)
  return ids.map((id, index) => dead.has(id) && ids.indexOf(id) === index)
}

/** Drops the dead letters of these ids for good. For each id whether it was dead. */
export function purgeDead(tx: Transaction, queue: QueueRow, ids: readonly string[]): boolean[] {
  return ids.map((id) => {
    const message = findDead(tx, queue, id)
    if (message !== undefined) purge(tx, queue, message)
    return message !== undefined
  })
}
