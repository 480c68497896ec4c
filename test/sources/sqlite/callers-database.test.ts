/** What the caller's own database, and others who use the file, may do to a backend that is at work. */
import { dirname } from 'node:path'
import Database from 'better-sqlite3'
import { StoreVersionError } from 'millrace'
import { describe, expect, it, onTestFinished } from 'vitest'
import { backendOn, Client, clientOn, connect, freshPath, queueOn } from './rig.js'

it('a database opened by a relative path means the file that it meant, wherever the process goes', async () => {
  const [here, there] = [freshPath(), freshPath()]
  const before = process.cwd()
  process.chdir(dirname(here))
  const owner = connect('queues.db')
  owner.exec('CREATE TABLE mine (a)')
  const backend = backendOn(owner)
  process.chdir(dirname(there))
  connect('queues.db').exec('CREATE TABLE theirs (a)')
  try {
    await new Client(backend).enqueue('a')
    expect(
      connect(there).prepare(`SELECT count(*) FROM sqlite_schema WHERE name GLOB 'millrace_*'`).pluck().get(),
    ).toBe(0)
    expect(
      connect(here).prepare(`SELECT count(*) FROM sqlite_schema WHERE name GLOB 'millrace_*'`).pluck().get(),
    ).not.toBe(0)
  } finally {
    process.chdir(before)
  }
})

it('a shared database in memory whose owner wants big integers', async () => {
  const owner = connect(':memory:')
  owner.defaultSafeIntegers(true)
  const client = clientOn(owner)
  expect(await client.enqueue('a')).toEqual(['enqueued'])
  expect(await client.claim()).toHaveLength(1)
})

it('a shared database in memory over which its owner iterates is busy, which ends', async () => {
  const owner = connect(':memory:')
  const client = clientOn(owner)
  await client.enqueue('a')
  owner.exec('CREATE TABLE mine (a); INSERT INTO mine VALUES (1), (2)')
  let asked: Promise<unknown> | undefined
  for (const _ of owner.prepare('SELECT * FROM mine').iterate()) {
    asked ??= client.enqueue('b')
    await new Promise((resolve) => setImmediate(resolve))
  }
  expect(await asked).toEqual(['enqueued'])
})

describe('an ageing step that no clock reaches', () => {
  it.each([1e15, 1e300])('orders by priority all the same (%d ms)', async (stepMs) => {
    const queue = queueOn(backendOn(freshPath()), { ageing: { stepMs } })
    await queue.enqueue('a', { priority: 60_000 })
    await queue.enqueue('b', { priority: 1 })
    expect((await queue.tryReceive())?.payload).toBe('b')
  })
})

it('S10 a lock that is met when the version is read is waited for, and is not taken for a table of somebody else', async () => {
  let busy = 3
  class Locked extends Database {
    override prepare<B extends unknown[] | object = unknown[], R = unknown>(sql: string) {
      if (sql.includes('FROM millrace_meta') && busy-- > 0)
        throw Object.assign(new Error('database is locked'), { code: 'SQLITE_BUSY_RECOVERY' })
      return super.prepare<B, R>(sql) as never
    }
  }
  const path = freshPath()
  await clientOn(path).stats()
  const owner = new Locked(path)
  onTestFinished(() => void owner.close())
  expect(await clientOn(owner).enqueue('a')).toEqual(['enqueued'])
})

it('N88 a process that is at work refuses to go on when the tables become those of a newer version', async () => {
  const path = freshPath()
  const client = clientOn(path)
  await client.enqueue('a')
  const other = connect(path)
  other.exec('UPDATE millrace_meta SET version = version + 1')
  await expect(client.enqueue('b')).rejects.toThrow(StoreVersionError)
  await expect(client.claim()).rejects.toThrow(StoreVersionError)
  await expect(queueOn(client.backend, {}, 'new').stats()).rejects.toThrow(StoreVersionError)
  expect(other.prepare('SELECT count(*) AS n FROM millrace_queues').get()).toEqual({ n: 1 })
  other.exec('UPDATE millrace_meta SET version = version - 1')
  expect(await client.claim()).toHaveLength(1)
})
