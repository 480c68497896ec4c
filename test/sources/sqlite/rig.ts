import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import { type Backend, Queue, type QueueOptions } from 'millrace'
import { type SqliteBackendOptions, type SqliteDatabase, sqliteBackend } from 'millrace/sqlite'
import { expect, onTestFinished } from 'vitest'
import type { Claim, NewMessage, SettleCommand, SettleState } from '../../../src/driver.js'
import { conserved } from '../../../src/testing/conserved.js'
import { DriverClient } from '../../support/driver-client.js'
import { message } from '../memory/harness.js'

/** A folder that goes when the test ends, after all that was opened in it since. */
export function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-sqlite-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Where a database may be made. */
export function freshPath(): string {
  return join(freshFolder(), 'queues.db')
}

/** A backend of its own, as another process would have; closed when the test ends. What a power cut loses is not waited for. */
export function backendOn(database: string | SqliteDatabase, options: SqliteBackendOptions = {}): Backend {
  const backend = sqliteBackend(database, { durability: 'normal', ...options })
  onTestFinished(async () => backend.close())
  return backend
}

/** A connection of the application's own, closed when the test ends. */
export function connect(path: string, options?: Database.Options): Database.Database {
  const database = new Database(path, options)
  onTestFinished(() => void database.close())
  return database
}

/** Another connection that holds the lock of the file from now until it is released. */
export function lock(path: string): { release(): void } {
  const holder = connect(path, { timeout: 1_000 })
  holder.exec('BEGIN IMMEDIATE')
  return { release: () => holder.exec('ROLLBACK') }
}

/** A queue, closed when the test ends. */
export function queueOn<T = string>(backend: Backend, options: Partial<QueueOptions<T>> = {}, name = 'q'): Queue<T> {
  const queue = new Queue<T>(name, { backend, ...options })
  onTestFinished(async () => {
    await queue.close({ graceMs: 0 })
  })
  return queue
}

/** A driver with the tokens and defaults filled in. */
export class Client extends DriverClient {
  constructor(backend: Backend, queue = 'q') {
    super(backend, queue)
  }

  async enqueue(...messages: (string | Partial<NewMessage>)[]) {
    return this.driver.enqueue(messages.map(message), this.token())
  }

  async settle(command: SettleCommand): Promise<SettleState | undefined> {
    return (await this.driver.settle([command], this.token()))[0]?.state
  }

  async ack({ id, token }: Claim): Promise<SettleState | undefined> {
    return this.settle({ kind: 'ack', id, token })
  }

  async requeue({ id, token }: Claim, delayMs = 0): Promise<SettleState | undefined> {
    return this.settle({ kind: 'requeue', id, token, delayMs, countAttempt: true })
  }

  async bury({ id, token }: Claim, reason = 'bad'): Promise<SettleState | undefined> {
    return this.settle({ kind: 'dead-letter', id, token, reason })
  }
}

/** A client with a backend of its own. */
export function clientOn(database: string | SqliteDatabase, options: SqliteBackendOptions = {}): Client {
  return new Client(backendOn(database, options))
}

const ROWS = `SELECT q.name, q.ready, q.delayed, q.claimed, q.dead, q.outcomes, q.bytes, q.readyBytes,
  count(CASE state WHEN 0 THEN 1 END) AS ready_, count(CASE state WHEN 1 THEN 1 END) AS delayed_,
  count(CASE state WHEN 2 THEN 1 END) AS claimed_, count(CASE state WHEN 3 THEN 1 END) AS dead_,
  count(CASE WHEN state > 3 THEN 1 END) AS outcomes_, total(CASE WHEN state < 3 THEN size END) AS bytes_,
  total(CASE state WHEN 0 THEN size END) AS readyBytes_
  FROM millrace_queues q LEFT JOIN millrace_messages m ON m.queue = q.id GROUP BY q.id`

/** Asserts that the file is sound, and that every queue in it counts right and has lost or doubled nothing. */
export function expectWhole(database: SqliteDatabase): void {
  database.exec('BEGIN')
  try {
    expect(database.pragma('integrity_check', { simple: true })).toBe('ok')
    for (const row of database.prepare(ROWS).all() as Record<string, number | string>[]) {
      for (const [name, value] of Object.entries(row).filter(([each]) => each.endsWith('_')))
        expect([row['name'], name, row[name.slice(0, -1)]]).toEqual([row['name'], name, value])
    }
    for (const totals of database.prepare('SELECT * FROM millrace_queues').all())
      expect(conserved(totals as Parameters<typeof conserved>[0])).toBe(true)
  } finally {
    database.exec('COMMIT')
  }
}
