/**
 * Parts of transactions, and the limits that the server sets to them.
 */
import type { Compare, KeyValue, Op, Result, Txn } from './client.js'
import { endOf } from './keys.js'

export function put(key: string, value: Buffer, lease?: string): Op {
  return lease === undefined ? { kind: 'put', key, value } : { kind: 'put', key, value, lease }
}

export function remove(key: string): Op {
  return { kind: 'delete', key }
}

export function removeRange(key: string, end: string): Op {
  return { kind: 'delete', key, end }
}

export function get(key: string): Op {
  return { kind: 'get', key }
}

/** The first keys that begin so: neither sorted nor counted, which would read them all. */
export function head(prefix: string, limit: number): Op {
  return range(prefix, endOf(prefix), limit)
}

export function range(key: string, end: string, limit = 0): Op {
  return { kind: 'get', key, end, limit }
}

export function nested(compare: readonly Compare[], success: readonly Op[], failure: readonly Op[] = []): Op {
  return { kind: 'txn', txn: { compare, success, failure } }
}

/** The key was changed last at this revision; 0 says that it is absent. */
export function modIs(key: string, revision: number): Compare {
  return { key, field: 'mod', is: 'Equal', to: revision }
}

export function absent(key: string): Compare {
  return { key, field: 'create', is: 'Equal', to: 0 }
}

export function present(key: string): Compare {
  return { key, field: 'create', is: 'Greater', to: 0 }
}

/** The key, or none from `key` up to `end`, was put after this revision. */
export function untouchedSince(revision: number, key: string, end?: string): Compare {
  return { key, ...(end !== undefined && { end }), field: 'mod', is: 'Less', to: revision + 1 }
}

/**
 * Operations as at most `most` of one level: the server counts along each path through a transaction only, so that what is
 * too much for one level goes in transactions inside of it.
 */
export function packed(ops: readonly Op[], most: number): Op[] {
  if (ops.length <= most) return [...ops]
  const size = Math.ceil(ops.length / most)
  const groups: Op[] = []
  for (let from = 0; from < ops.length; from += size) groups.push(nested([], ops.slice(from, from + size)))
  return groups
}

/** About how many bytes a transaction takes in a request. */
export function bytesOf({ compare, success, failure }: Txn): number {
  let bytes = 0
  for (const { key, end = '' } of compare) bytes += key.length + end.length + 24
  for (const op of success) bytes += opBytes(op)
  for (const op of failure) bytes += opBytes(op)
  return bytes
}

function opBytes(op: Op): number {
  if (op.kind === 'txn') return bytesOf(op.txn) + 16
  const key = Buffer.byteLength(op.key) + 16
  return op.kind === 'put' ? key + op.value.length + 16 : key + (op.end?.length ?? 0)
}

/** The one key of a get, or undefined. */
export function only(result: Result | undefined): KeyValue | undefined {
  return result?.kvs[0]
}
