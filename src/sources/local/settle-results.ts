/**
 * The results of settlements, one object for each, and the shapes of their commands.
 */
import type { CarriedMessage, SettleCommand, SettleResult } from '../../driver.js'

export const settled = {
  stale: { state: 'stale' },
  acked: { state: 'acked' },
  forwarded: { state: 'forwarded' },
  ready: { state: 'ready' },
  delayed: { state: 'delayed' },
  dead: { state: 'dead' },
  cancelled: { state: 'cancelled' },
} as const satisfies Readonly<Record<string, SettleResult>>

export type CommandOf<K extends SettleCommand['kind']> = Extract<SettleCommand, { kind: K }>

/** Whether messages for other queues go along. */
export function carries({ carry }: { readonly carry?: readonly CarriedMessage[] }): boolean {
  return carry !== undefined && carry.length > 0
}
