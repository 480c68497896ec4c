/** Nothing that is asked often gets dearer with the depth of the queue: it reads an index, in its order. */
import Database from 'better-sqlite3'
import { describe, expect, it, onTestFinished } from 'vitest'
import { clientOn, connect, freshPath } from './rig.js'

const prepared = new Set<string>()

/** Remembers the statements of the connections that are opened like it. */
class Listening extends Database {
  override prepare<BindParameters extends unknown[] | object = unknown[], Result = unknown>(source: string) {
    prepared.add(source)
    return super.prepare<BindParameters, Result>(source) as never
  }
}

/** Every verb once, with something in every state, and both kinds of order. */
async function useEverything(path: string): Promise<void> {
  const owner = new Listening(path)
  onTestFinished(() => void owner.close())
  const client = clientOn(owner)
  const { driver } = client
  await client.enqueue('a', 'b', 'c', 'd', 'e', 'f', { id: 'delayed', delayMs: 1 }, { id: 'mortal', ttlMs: 1 })
  await client.enqueue({ id: 'later', delayMs: 60_000 }, { id: 'old', ttlMs: 60_000 })
  const [a, b, c, d] = await client.claim(4, { leaseMs: 5_000 })
  if (!(a && b && c && d)) throw new Error('four were ready')
  await driver.renew([{ ...a, leaseMs: 60_000, progress: new Uint8Array(1) }])
  await client.ack(a)
  await client.requeue(b, 10)
  await client.requeue(c)
  await client.bury(d)
  await client.claim(1, { leaseMs: 1 })
  await driver.settle([{ ...(await client.one()), kind: 'ack', carry: [] }], client.token())
  for (const state of ['ready', 'delayed', 'claimed'] as const) {
    await driver.list(state, { limit: 2 })
    await driver.list(state, { limit: 2, after: state === 'ready' ? '1:1:1' : '1:1' })
  }
  await driver.deadLetters({ limit: 1 })
  await driver.deadLetters({ limit: 1, after: '0' })
  await driver.outcome('a', true)
  await driver.cancel('e', client.token())
  await driver.sweep(10)
  await driver.requeueDead(['d'], client.token())
  await driver.configure({ ageing: { stepMs: 5, cap: 10 }, retention: { outcomesMs: 1, maxOutcomes: 0 } })
  await client.claim(9)
  await driver.purge(['ready', 'delayed', 'claimed', 'dead'], 20, client.token())
  await driver.configure({ limits: { maxLength: 3, maxBytes: 50, maxPayloadBytes: 9, whenFull: 'dropOldest' } })
  await client.enqueue('g', 'h', 'i')
  await client.enqueue('j')
  await client.stats()
}

/** How SQLite would carry out a statement. */
function planOf(database: Database.Database, sql: string): string[] {
  const values = Array.from({ length: sql.match(/\?/g)?.length ?? 0 }, () => 1)
  const steps = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...values) as { detail: string }[]
  return steps.map(({ detail }) => detail)
}

/** What would read, or sort, as many rows as there are messages. */
function dear(database: Database.Database): string[] {
  const found: string[] = []
  for (const sql of prepared) {
    if (!/^(SELECT|UPDATE|DELETE)/.test(sql) || !sql.includes('millrace_messages')) continue
    for (const step of planOf(database, sql))
      if (/\bSCAN millrace_messages|TEMP B-TREE/.test(step)) found.push(`${step}: ${sql}`)
  }
  return found
}

describe('the statements', () => {
  it('S12 never read all messages nor sort them', async () => {
    const database = connect(freshPath())
    await useEverything(database.name)
    const aboutMessages = [...prepared].filter((sql) => sql.includes('millrace_messages'))
    expect(aboutMessages.length).toBeGreaterThan(25)
    expect(dear(database)).toEqual([])
  })

  it.each([
    ['millrace_ready', /state = 0 ORDER BY rank, place, arrival LIMIT/],
    ['millrace_claimed', /leaseAt <= \? ORDER BY leaseAt/],
    ['millrace_delayed', /state = 1 AND arrivedAt <= \? ORDER BY/],
    ['millrace_expiring', /expiresAt <= \?/],
    ['millrace_by_id', /id = \? AND state = 2 AND fence = \?/],
    ['millrace_ended', /state > 3\s+ORDER BY endNumber LIMIT 1/],
  ])('S12 read the index %s, which holds that state alone', async (index, shape) => {
    const database = connect(freshPath())
    await useEverything(database.name)
    const statements = [...prepared].filter((sql) => shape.test(sql))
    expect(statements.length).toBeGreaterThan(0)
    for (const sql of statements) expect(planOf(database, sql).join('\n')).toContain(`INDEX ${index} `)
  })

  it('S12 keep to it when the application has let SQLite gather statistics of a lopsided file', async () => {
    const database = connect(freshPath())
    const client = clientOn(database.name)
    await client.enqueue(...Array.from({ length: 2_000 }, (_, index) => ({ id: `${index}`, delayMs: index % 3 })))
    await client.claim(900)
    await useEverything(freshPath())
    database.exec('ANALYZE')
    expect(dear(database)).toEqual([])
  })
})
