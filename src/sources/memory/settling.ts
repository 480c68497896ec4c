import type { CarriedMessage, NewMessage, SettleCommand, SettleResult } from '../../driver.js'
import { type AdmissionPlan, byQueue } from '../local/admission.js'
import { type CommandOf, carries, settled } from '../local/settle-results.js'
import { admit, planAdmission } from './admission.js'
import { endCancelled, failAttempt, MAINTENANCE_STEP, maintain, mayBeDeliveredAgain } from './maintenance.js'
import type { Message } from './message.js'
import { noteFailure, type QueueStore } from './store.js'

/** Finds the store of another queue of the same backend. */
export type FindStore = (queue: string) => QueueStore

/** Carries out one command: one step, and none at all if the claim is not the live one. */
export function settle(store: QueueStore, command: SettleCommand, findStore: FindStore): SettleResult {
  const message = store.liveClaim(command.id, command.token)
  if (message === undefined) return settled.stale
  if (command.kind === 'ack') return ack(store, message, command, findStore)
  if (message.cancelRequested) return cancel(store, message)
  if (command.kind === 'release') return release(store, message, command.delivered)
  if (command.kind === 'requeue') return requeue(store, message, command)
  return deadLetter(store, message, command, findStore)
}

function ack(store: QueueStore, message: Message, command: CommandOf<'ack'>, findStore: FindStore): SettleResult {
  if (carries(command)) {
    const end = () => {
      store.totals.forwarded += 1
      store.end(message, 'done', command.result)
    }
    return carryOver(store, message, command.carry ?? [], findStore, end) ?? settled.forwarded
  }
  store.lift(message)
  store.totals.acked += 1
  store.end(message, 'done', command.result)
  return settled.acked
}

function cancel(store: QueueStore, message: Message): SettleResult {
  store.lift(message)
  endCancelled(store, message)
  return settled.cancelled
}

function release(store: QueueStore, message: Message, delivered: boolean): SettleResult {
  store.lift(message)
  if (!delivered) message.deliveryCount -= 1
  else if (!mayBeDeliveredAgain(store, message)) return settled.dead
  store.giveBack(message)
  return settled.ready
}

function requeue(store: QueueStore, message: Message, command: CommandOf<'requeue'>): SettleResult {
  store.lift(message)
  if (command.reason !== undefined) noteFailure(message, command.reason)
  const mayReturn = command.countAttempt
    ? failAttempt(store, message, command.reason ?? `attempt ${message.attempt} failed`)
    : mayBeDeliveredAgain(store, message)
  if (!mayReturn) return settled.dead
  if (command.delayMs > 0) {
    store.delay(message, command.delayMs)
    return settled.delayed
  }
  store.giveBack(message)
  return settled.ready
}

function deadLetter(
  store: QueueStore,
  message: Message,
  command: CommandOf<'dead-letter'>,
  findStore: FindStore,
): SettleResult {
  const { carry = [], reason } = command
  if (carries(command)) {
    const end = () => {
      store.totals.forwarded += 1
      store.end(message, 'dead-elsewhere', undefined, reason)
    }
    return carryOver(store, message, carry, findStore, end) ?? settled.dead
  }
  store.lift(message)
  noteFailure(message, reason)
  store.bury(message, reason, message.attempt)
  return settled.dead
}

/** Ends a claim together with storing what it carries; a refusal, with nothing changed, if that cannot be stored. */
function carryOver(
  from: QueueStore,
  message: Message,
  carried: readonly CarriedMessage[],
  findStore: FindStore,
  end: () => void,
): SettleResult | undefined {
  const parcels: { to: QueueStore; batch: NewMessage[]; plan: AdmissionPlan }[] = []
  for (const [queue, batch] of byQueue(carried)) {
    const to = findStore(queue)
    if (to !== from) maintain(to, MAINTENANCE_STEP)
    const plan = planAdmission(to, batch, to === from ? message : undefined)
    if (plan instanceof Error) return refusal(plan)
    parcels.push({ to, batch, plan })
  }
  from.lift(message)
  end()
  for (const { to, batch, plan } of parcels) admit(to, batch, plan)
  return undefined
}

function refusal(error: Error): SettleResult {
  return { state: 'refused', error }
}
