/**
 * Gives ready messages their places anew after a change of `ageing`. Places begin with the number of the rule that they
 * were reckoned by, so those that are left are the first.
 */
import type { Desk } from './desk.js'
import { readableOf } from './maintenance.js'
import { epochText } from './rank.js'
import { get, modIs, packed, range } from './txn.js'

const STEP = 40

/** Moves some; 0 when no place is left that was reckoned by an older rule, undefined if others have changed something of it. */
export async function reckonSome(desk: Desk): Promise<number | undefined> {
  const { keys } = desk
  const { results } = await desk.read(
    get(keys.meta),
    range(keys.ready, `${keys.ready}${epochText(desk.meta.epoch)}`, STEP),
  )
  const { kvs = [] } = results[1] ?? {}
  if (kvs.length === 0) return 0
  const found = await readableOf(desk, kvs, 'ready')
  const draft = desk.session.record.draft('itself')
  const change = desk.change(draft)
  for (const { key, entry } of found) {
    change.takeOff('ready', key, entry, true)
    change.makeReady(entry, `r/${key.slice(keys.ready.length)}`)
  }
  const ops = [...change.finished(), desk.session.putOf(draft)]
  const compare = [modIs(keys.meta, desk.meta.mod), ...found.map(({ key, mod }) => modIs(key, mod))]
  const outcome = await desk.session.commit({ compare, success: packed(ops, 20), failure: [] })
  if (outcome.kind === 'done') desk.session.adopt(draft, outcome.revision)
  desk.prune()
  return outcome.kind === 'done' || outcome.kind === 'repeated' ? kvs.length : undefined
}
