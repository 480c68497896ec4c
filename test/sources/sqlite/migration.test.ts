/** A file of an older version becomes one of this version by being opened, whole or not at all. */
import { copyFileSync } from 'node:fs'
import Database from 'better-sqlite3'
import { BackendError } from 'millrace'
import { describe, expect, it } from 'vitest'
import { MIGRATIONS, migrate } from '../../../src/sources/sqlite/schema.js'
import { clientOn, connect, expectWhole, freshPath } from './rig.js'

/** The newest tables, as text. */
function schemaOf(database: Database.Database): unknown[] {
  return database.prepare('SELECT type, name, sql FROM sqlite_schema ORDER BY name').all()
}

function versionOf(database: Database.Database): unknown {
  return database.prepare('SELECT version FROM millrace_meta').pluck().get()
}

/** A file of the first version with a message in every state. What came later is taken off a file of today. */
async function firstVersion(): Promise<string> {
  const path = freshPath()
  const client = clientOn(path)
  await client.enqueue('claimed', 'dead', 'acked', 'taken away', { id: 'ready', priority: 3 }, 'b')
  await client.enqueue({ id: 'delayed', delayMs: 60_000 }, { id: 'mortal', ttlMs: 60_000 })
  await client.one({ consumer: 'before' })
  await client.bury(await client.one(), 'was bad')
  await client.ack(await client.one())
  await client.driver.cancel('taken away', client.token())
  await client.backend.close()
  const old = connect(freshPath())
  old.pragma('journal_mode = WAL')
  migrate(old, MIGRATIONS.slice(0, 1))
  old.prepare('ATTACH ? AS today').run(path)
  old.exec(`INSERT INTO millrace_queues SELECT * FROM today.millrace_queues;
    INSERT INTO millrace_messages SELECT * FROM today.millrace_messages`)
  old.exec('DETACH today')
  old.pragma('wal_checkpoint(TRUNCATE)')
  const before = freshPath()
  copyFileSync(old.name, before)
  return before
}

describe('a file of the first version', () => {
  it('S6, N88 has all its messages, in every state, when it is opened', async () => {
    const path = await firstVersion()
    const database = connect(path)
    expect(versionOf(database)).toBe(1)
    const client = clientOn(path)
    expect(await client.stats()).toMatchObject({
      ready: 3,
      delayed: 1,
      claimed: 1,
      dead: 1,
      enqueuedTotal: 8,
      ackedTotal: 1,
      cancelledTotal: 1,
    })
    expect(versionOf(database)).toBe(MIGRATIONS.length)
    expect((await client.driver.list('claimed', { limit: 9 })).items).toMatchObject([
      { id: 'claimed', consumer: 'before', deliveryCount: 1 },
    ])
    expect((await client.driver.list('delayed', { limit: 9 })).items).toMatchObject([{ id: 'delayed' }])
    expect((await client.driver.deadLetters({ limit: 9 })).items).toMatchObject([{ id: 'dead', reason: 'was bad' }])
    expect(await client.driver.outcome('acked', false)).toEqual({ state: 'done' })
    expect(await client.driver.outcome('taken away', false)).toEqual({ state: 'cancelled' })
    expect((await client.claim(9)).map(({ id }) => id)).toEqual(['b', 'mortal', 'ready'])
    expectWhole(database)
  })

  it('N88 has the tables of a new file afterwards', async () => {
    const path = await firstVersion()
    const fresh = freshPath()
    await Promise.all([clientOn(path).stats(), clientOn(fresh).stats()])
    expect(schemaOf(connect(path))).toEqual(schemaOf(connect(fresh)))
  })

  it('N88 is brought up by one of many that open it at once', async () => {
    const path = await firstVersion()
    const clients = Array.from({ length: 6 }, () => clientOn(path))
    const stats = await Promise.all(clients.map((client) => client.stats()))
    for (const each of stats) expect(each).toMatchObject({ ready: 3, claimed: 1, dead: 1 })
    expectWhole(connect(path))
  })

  it('N88 opened by many at once when it is not there yet is made once', async () => {
    const path = freshPath()
    const clients = Array.from({ length: 6 }, () => clientOn(path))
    await Promise.all(clients.map((client, index) => client.enqueue(`${index}`)))
    expect(await clients[0]?.stats()).toMatchObject({ ready: 6, enqueuedTotal: 6 })
    expectWhole(connect(path))
  })
})

describe('a migration that fails', () => {
  it.each([
    ['in its first statement', 'CREATE TABLE nonsense ('],
    ['after some of it was done', `${MIGRATIONS[1]}; UPDATE millrace_messages SET bytes = NULL; SELECT broken`],
    ['by a table that is in the way', 'DROP INDEX millrace_ready; CREATE TABLE millrace_queues (id)'],
  ])('S6, N88 leaves the old version whole: %s', async (_, broken) => {
    const path = await firstVersion()
    const database = connect(path)
    const before = [schemaOf(database), database.prepare('SELECT * FROM millrace_messages').all()]
    const failing = new Database(path)
    expect(() => migrate(failing, [MIGRATIONS[0] as string, broken])).toThrow(Database.SqliteError)
    expect(failing.inTransaction).toBe(false)
    failing.close()
    expect(versionOf(database)).toBe(1)
    expect([schemaOf(database), database.prepare('SELECT * FROM millrace_messages').all()]).toEqual(before)
    expect(await clientOn(path).claim(9)).toHaveLength(3)
  })

  it('S10 an index of the new version that is there already refuses the file, and leaves it at the old one', async () => {
    const path = await firstVersion()
    const database = connect(path)
    database.exec('CREATE INDEX millrace_aged ON millrace_messages (queue)')
    await expect(clientOn(path).stats()).rejects.toBeInstanceOf(BackendError)
    expect(versionOf(database)).toBe(1)
    database.exec('DROP INDEX millrace_aged')
    expect(await clientOn(path).stats()).toMatchObject({ ready: 3 })
  })

  it('N88 an empty file stays empty', async () => {
    const path = freshPath()
    const database = connect(path)
    expect(() => migrate(database, ['CREATE TABLE millrace_queues (id); SELECT broken'])).toThrow(Database.SqliteError)
    expect(schemaOf(database)).toEqual([])
    await clientOn(path).enqueue('a')
    expect(versionOf(database)).toBe(MIGRATIONS.length)
  })
})
