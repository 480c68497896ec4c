import type { EntryRow } from './entry.js'

/** What a page of claims holds. */
export interface Page {
  readonly consumer: string
  readonly taken: boolean
  readonly leaseMs: number
  readonly at: number
  readonly rows: readonly EntryRow[]
  /** Their places, without the name of the queue. */
  readonly places: readonly string[]
}

/** A lease as it can be granted: whole seconds, two at least. */
export function leaseFor(ms: number): number {
  return Math.max(2, Math.ceil(ms / 1_000)) * 1_000
}
