/**
 * The ready messages that have waited longest. Ready messages are in the order in which they will be delivered, so without
 * ageing those that are oldest are the first of each priority; with it they are looked for among the first.
 */
import type { Candidate, Desk } from './desk.js'
import { decodeEntry } from './entry.js'
import { endOf } from './keys.js'
import { afterPriority } from './rank.js'
import { range } from './txn.js'

/** How many priorities, or with ageing how many of the first messages, are looked at. */
const PRIORITIES_LOOKED_AT = 64
const MESSAGES_LOOKED_AT = 512

/** Up to so many ready messages, the oldest first. */
export async function oldestReady(desk: Desk, limit: number): Promise<Candidate[]> {
  const { keys, meta } = desk
  if (meta.ageing !== null) return byArrival(await first(desk, keys.ready, MESSAGES_LOOKED_AT)).slice(0, limit)
  const found: Candidate[] = []
  let from = keys.ready
  for (let looked = 0; looked < PRIORITIES_LOOKED_AT; looked += 1) {
    const some = await first(desk, from, limit)
    const lead = some[0]
    if (lead === undefined) break
    const end = `${keys.ready}${afterPriority(lead.key.slice(keys.ready.length))}`
    const ofPriority = some.filter(({ key }) => key < end)
    found.push(...ofPriority)
    // The rest of what was read is of later priorities, and all there is of them if it was less than asked for.
    if (some.length < limit) {
      found.push(...some.slice(ofPriority.length))
      break
    }
    from = end
  }
  return byArrival(found).slice(0, limit)
}

async function first(desk: Desk, from: string, limit: number): Promise<Candidate[]> {
  const { results } = await desk.read(range(from, endOf(desk.keys.ready), limit))
  return (results[0]?.kvs ?? []).map(({ key, mod, value }) => ({ key, mod, entry: decodeEntry(value) }))
}

function byArrival(candidates: readonly Candidate[]): Candidate[] {
  return candidates.toSorted((one, other) => (one.entry.arrival < other.entry.arrival ? -1 : 1))
}
