import type { Backend, SourceEvent } from 'millrace'
import { type EtcdOptions, etcdBackend } from 'millrace/etcd'
import { QueueRig } from '../../support/rig.js'
import { type EtcdProxy, ofMethod, type SeenCall } from '../../support/servers/etcd-proxy.js'
import {
  isLost,
  keysAnswered,
  type RangeAsked,
  rangeAsked,
  type TxnAsked,
  txnAnswered,
  txnAsked,
} from '../../support/servers/etcd-wire.js'

/** What a client takes that is to go through something which listens there. */
export const urlOf = ({ port }: { readonly port: number }) => `http://127.0.0.1:${port}`

/** Makes backends besides. */
export class Rig extends QueueRig {
  backend(hosts: string | string[], options: Omit<EtcdOptions, 'hosts'> = {}): Backend {
    return etcdBackend({ hosts, ...options })
  }
}

/** What a source has told of the leases that its claims are under. */
export function leaseStates(events: readonly SourceEvent[]): string[] {
  return events.flatMap((event) => (event.type === 'lease' ? [event.state] : []))
}

export const isTxn = ofMethod('KV/Txn')

/** Whether it can change something in the store. */
export function isWrite(call: SeenCall): boolean {
  if (['KV/Put', 'KV/DeleteRange'].includes(call.method)) return true
  if (!isTxn(call)) return false
  const { puts, deletes } = txnAsked(call.request)
  return puts.length + deletes.length > 0
}

/** Whether it claims messages: it puts a page of claims, if they are still there. */
export function isClaim(call: SeenCall): boolean {
  return isTxn(call) && txnAsked(call.request).puts.some(({ key }) => /\/c\/[^/]+\/\d+$/.test(key))
}

export const isUnary = (call: SeenCall) => !['Watch/Watch', 'Lease/LeaseKeepAlive'].includes(call.method)

/** All ranges that were asked for, in transactions or apart. */
export function rangesIn(proxy: EtcdProxy): RangeAsked[] {
  return proxy.calls.flatMap(({ method, request }) => {
    if (method === 'KV/Range') return [rangeAsked(request)]
    return method === 'KV/Txn' ? [...txnAsked(request).ranges] : []
  })
}

/** How many keys the server has answered. */
export function keysIn(proxy: EtcdProxy): number {
  return proxy.calls.reduce((sum, { method, reply }) => {
    if (reply === undefined) return sum
    if (method === 'KV/Range') return sum + keysAnswered(reply)
    return method === 'KV/Txn' ? sum + txnAnswered(reply).keys : sum
  }, 0)
}

/** Transactions that have done nothing of what they were for, since others were faster. */
export function lostIn(proxy: EtcdProxy): number {
  return proxy.calls.filter(
    ({ method, request, reply }) =>
      method === 'KV/Txn' && reply !== undefined && isLost(txnAsked(request), txnAnswered(reply)),
  ).length
}

/** The most that the server counts on any path through a transaction: compares, or operations of a branch. */
export function widthOf({ compares, success, failure, within }: TxnAsked): number {
  const inner = (txns: readonly TxnAsked[]) => Math.max(0, ...txns.map(widthOf))
  return Math.max(compares, success + inner(within.success), failure + inner(within.failure))
}
