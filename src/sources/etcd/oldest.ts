/**
 * The ready messages that have waited longest. Ready messages are in the order in which they will be delivered, so without
 * ageing those that are oldest are the first of each priority; with it they are looked for among the first.
 */
import type { KeyValue } from './client.js'
import type { Desk } from './desk.js'
import { readableEntry } from './entry.js'
import { endOf } from './keys.js'
import type { Candidate } from './queue-head.js'
import { afterPriority } from './rank.js'
import { range } from './txn.js'

/** How many priorities, or with ageing how many of the first messages, are looked at. */
const PRIORITIES_LOOKED_AT = 64
const MESSAGES_LOOKED_AT = 512

/** The first ready messages, and whether there are no others. */
export interface Front {
  readonly candidates: readonly Candidate[]
  readonly isAll: boolean
}

/** The one ready message that has waited longest, by what was read of the first ones. */
export async function oldestBehind(desk: Desk, { candidates, isAll }: Front): Promise<Candidate | undefined> {
  if (isAll) return byArrival(candidates)[0]
  if (candidates.length === 0 || desk.meta.ageing !== null) return (await oldestReady(desk, 1))[0]
  const last = candidates.at(-1) as Candidate
  const rest = await firstsOf(desk, behind(desk, last), 1)
  return byArrival([...candidates, ...rest])[0]
}

/** Up to so many ready messages, the oldest first. */
export async function oldestReady(desk: Desk, limit: number): Promise<Candidate[]> {
  const { keys, meta } = desk
  if (meta.ageing !== null) return byArrival((await first(desk, keys.ready, MESSAGES_LOOKED_AT)).found).slice(0, limit)
  return byArrival(await firstsOf(desk, keys.ready, limit)).slice(0, limit)
}

/** Up to so many of each priority, from a key on. */
async function firstsOf(desk: Desk, start: string, limit: number): Promise<Candidate[]> {
  const found: Candidate[] = []
  let from = start
  for (let looked = 0; looked < PRIORITIES_LOOKED_AT; looked += 1) {
    const { found: some, isAll } = await first(desk, from, limit)
    const lead = some[0]
    if (lead === undefined) break
    const end = behind(desk, lead)
    const ofPriority = some.filter(({ key }) => key < end)
    found.push(...ofPriority)
    // The rest of what was read is of later priorities, and all there is of them if it was less than asked for.
    if (isAll) {
      found.push(...some.slice(ofPriority.length))
      break
    }
    from = end
  }
  return found
}

/** Where the next priority begins. */
function behind({ keys }: Desk, { key }: Candidate): string {
  return `${keys.ready}${afterPriority(key.slice(keys.ready.length))}`
}

async function first(desk: Desk, from: string, limit: number) {
  const { results } = await desk.read(range(from, endOf(desk.keys.ready), limit))
  const { kvs = [] } = results[0] ?? {}
  return { found: candidatesIn(kvs), isAll: kvs.length < limit }
}

/** Those that can be read. */
export function candidatesIn(stored: readonly KeyValue[]): Candidate[] {
  return stored.flatMap(({ key, mod, value }) => {
    const entry = readableEntry(value)
    return entry ? [{ key, mod, entry }] : []
  })
}

function byArrival(candidates: readonly Candidate[]): Candidate[] {
  return candidates.toSorted((one, other) => (one.entry.arrival < other.entry.arrival ? -1 : 1))
}
