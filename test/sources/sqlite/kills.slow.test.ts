/** Processes that are killed at any instant, two hundred times, while others go on. */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type Database from 'better-sqlite3'
import { expect, it } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import type { Note } from './children/churn.js'
import { backendOn, connect, expectWhole, freshPath, queueOn } from './rig.js'

const KILLS = 200
/** Starting a process takes most of the time. */
const AT_ONCE = 4

const churn = await bundled(new URL('./children/churn.ts', import.meta.url))

/** What the killed ones have noted; a last line that was cut short is none. */
function notesIn(log: string): Note[] {
  if (!existsSync(log)) return []
  const lines = readFileSync(log, 'utf8').split('\n').slice(0, -1)
  return lines.map((line) => JSON.parse(line) as Note)
}

/** The states of a message that has ended, by how it was settled. */
const ENDS: Readonly<Record<string, number>> = { ack: 4, bury: 3 }

/** Every id that was answered is stored, and what was answered as ended has ended for good. */
function expectKept(database: Database.Database, notes: readonly Note[]): void {
  const find = database.prepare('SELECT state FROM millrace_messages WHERE id = ?').pluck()
  const stored = notes.flatMap((note) => (note.kind === 'enqueue' && note.answered ? note.ids : []))
  expect(stored.filter((id) => find.get(id) === undefined)).toEqual([])
  expect(ends(notes).filter(({ id, kind }) => find.get(id) !== ENDS[kind])).toEqual([])
  const totals = database.prepare(
    `SELECT (SELECT count(*) FROM millrace_messages) AS held, (SELECT enqueuedTotal FROM millrace_queues) AS entered`,
  )
  const { held, entered } = totals.get() as { held: number; entered: number }
  expect(held).toBe(entered)
}

type Delivered = Extract<Note, { kind: 'delivery' }>
type Left = Exclude<Note, { kind: 'delivery' | 'enqueue' }>

function leavings(notes: readonly Note[]): Left[] {
  return notes.filter((note): note is Left => note.kind !== 'delivery' && note.kind !== 'enqueue')
}

/** What was answered as ended. */
function ends(notes: readonly Note[]): Left[] {
  return leavings(notes).filter(({ kind, answer }) => answer === 'settled' && kind in ENDS)
}

/** No claim was given twice, none while another was live, and none of what had ended. */
function expectNoneTwice(notes: readonly Note[]): void {
  const deliveries = notes.filter((note): note is Delivered => note.kind === 'delivery')
  expect(new Set(deliveries.map(({ fence }) => fence)).size).toBe(deliveries.length)
  const latest = new Map<string, Delivered>()
  const left = new Set(leavings(notes).map(({ fence }) => fence))
  for (const delivery of deliveries.sort((a, b) => a.fence - b.fence)) {
    const before = latest.get(delivery.id)
    // One that was given back, or of which that was asked, may be given at once.
    if (before && !left.has(before.fence)) expect(delivery.at).toBeGreaterThanOrEqual(before.until)
    latest.set(delivery.id, delivery)
  }
  expect(ends(notes).filter(({ id, fence }) => latest.get(id)?.fence !== fence)).toEqual([])
}

it('S6, N25, N26, B8 200 kills at any instant lose nothing, double nothing and damage nothing', async () => {
  const path = freshPath()
  const queue = queueOn<string>(backendOn(path), { maxDeliveries: 1_000, leaseMs: 250 }, 'churn')
  await queue.configure({ retention: { maxOutcomes: 1_000_000 } })
  const database = connect(path)
  const logs: string[] = []
  let started = 0

  async function startAndKill(): Promise<void> {
    started += 1
    const log = join(dirname(path), `${started}.log`)
    logs.push(log)
    const atStart = started % 8 === 0
    const child = new Child<'working'>(churn, [path, log, `p${started}`])
    // Some die while they open the file, most while they work.
    if (!atStart) await child.hear()
    await new Promise((resolve) => setTimeout(resolve, Math.random() * (atStart ? 400 : 40)))
    await child.kill()
    expectWhole(database)
    expectKept(database, notesIn(log))
  }

  async function killOnAndOn(): Promise<void> {
    while (started < KILLS) await startAndKill()
  }

  await Promise.all(Array.from({ length: AT_ONCE }, killOnAndOn))
  const notes = logs.flatMap(notesIn)
  const answered = notes.filter((note) => note.kind === 'enqueue' && note.answered)
  expect(answered.length).toBeGreaterThan(KILLS)
  expectKept(database, notes)
  expectNoneTwice(notes)

  // What the dead have left comes back, and is given to whoever is there.
  const source = queue.source({ until: 'idle' })
  const seen: string[] = []
  for await (const delivery of source) {
    seen.push(delivery.id)
    await delivery.ack()
  }
  expect(new Set(seen).size).toBe(seen.length)
  expect(await queue.stats()).toMatchObject({ ready: 0, delayed: 0, claimed: 0 })
  expectKept(database, notes)
  expectWhole(database)
}, 300_000)
