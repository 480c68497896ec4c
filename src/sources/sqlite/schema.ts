/**
 * The tables, and how a file of an older version becomes one of this version.
 *
 * Each migration is the whole step from one version to the next. What has been released is never changed here: a new
 * version is a new entry.
 */
import { BackendError, StoreVersionError } from '../../errors.js'
import { inTransaction, type SqliteDatabase } from './database.js'

/**
 * A message is one row from its enqueue until its outcome is forgotten; `state` says where it is, and a partial index
 * for each state holds just the messages that are in it. Reading the next of any kind costs the same at any depth.
 *
 * `place` and `arrival` order what is ready: see `rank.ts`.
 */
const FIRST = `
CREATE TABLE millrace_queues (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  settings TEXT NOT NULL,
  paused INTEGER NOT NULL DEFAULT 0,
  ready INTEGER NOT NULL DEFAULT 0,
  delayed INTEGER NOT NULL DEFAULT 0,
  claimed INTEGER NOT NULL DEFAULT 0,
  dead INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL DEFAULT 0,
  readyBytes INTEGER NOT NULL DEFAULT 0,
  outcomes INTEGER NOT NULL DEFAULT 0,
  enqueuedTotal INTEGER NOT NULL DEFAULT 0,
  ackedTotal INTEGER NOT NULL DEFAULT 0,
  forwardedTotal INTEGER NOT NULL DEFAULT 0,
  purgedTotal INTEGER NOT NULL DEFAULT 0,
  expiredTotal INTEGER NOT NULL DEFAULT 0,
  cancelledTotal INTEGER NOT NULL DEFAULT 0,
  droppedTotal INTEGER NOT NULL DEFAULT 0,
  arrivals INTEGER NOT NULL DEFAULT 0,
  latestArrivalAt INTEGER NOT NULL DEFAULT 0,
  fences INTEGER NOT NULL DEFAULT 0,
  deaths INTEGER NOT NULL DEFAULT 0,
  ends INTEGER NOT NULL DEFAULT 0,
  wakes INTEGER NOT NULL DEFAULT 0,
  cancels INTEGER NOT NULL DEFAULT 0,
  reranked INTEGER
) STRICT;

CREATE TABLE millrace_messages (
  seq INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  id TEXT NOT NULL,
  state INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  place INTEGER NOT NULL,
  arrival INTEGER NOT NULL,
  arrivedAt INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  size INTEGER NOT NULL,
  enqueuedAt INTEGER NOT NULL,
  ttlMs INTEGER,
  buryExpired INTEGER NOT NULL DEFAULT 0,
  expiresAt INTEGER,
  attempt INTEGER NOT NULL DEFAULT 1,
  deliveryCount INTEGER NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  leaseAt INTEGER,
  consumer TEXT,
  taken INTEGER NOT NULL DEFAULT 0,
  cancelRequested INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER,
  reason TEXT,
  errors TEXT,
  endNumber INTEGER,
  endedAt INTEGER,
  result BLOB,
  progress BLOB,
  key TEXT,
  headers TEXT,
  bytes BLOB
) STRICT;

CREATE UNIQUE INDEX millrace_by_id ON millrace_messages (queue, id);
CREATE INDEX millrace_ready ON millrace_messages (queue, rank, place, arrival) WHERE state = 0;
CREATE INDEX millrace_delayed ON millrace_messages (queue, arrivedAt, arrival) WHERE state = 1;
CREATE INDEX millrace_claimed ON millrace_messages (queue, leaseAt) WHERE state = 2;
CREATE INDEX millrace_dead ON millrace_messages (queue, endNumber) WHERE state = 3;
CREATE INDEX millrace_ended ON millrace_messages (queue, endNumber) WHERE state > 3;
CREATE INDEX millrace_expiring ON millrace_messages (queue, expiresAt) WHERE state < 2 AND expiresAt IS NOT NULL;
`

/** Finds the oldest arrival where waiting makes up for priority; a version of its own, so that the way from one to the next is used. */
const SECOND = `
CREATE INDEX millrace_aged ON millrace_messages (queue, priority, arrivedAt) WHERE state = 0 AND rank = -1;
`

export const MIGRATIONS: readonly string[] = [FIRST, SECOND]

/** Refuses tables that are not ours, or those of a newer version. Changes nothing. */
export function checkTables(database: SqliteDatabase, migrations = MIGRATIONS): void {
  const version = versionOf(database)
  if (version > migrations.length) throw new StoreVersionError(database.name, version, migrations.length)
  if (version === 0) refuseForeign(database)
}

/** Brings the tables to the version of this library, in one transaction; refuses what it does not know. */
export function migrate(database: SqliteDatabase, migrations = MIGRATIONS): void {
  // Looked at without a lock first: a file that is up to date is opened while others write to it.
  if (versionOf(database) === migrations.length) return
  inTransaction(database, () => upgrade(database, migrations))
}

function upgrade(database: SqliteDatabase, migrations: readonly string[]): void {
  // Looked at again: somebody else may have been quicker.
  checkTables(database, migrations)
  const from = versionOf(database)
  if (from === 0) {
    database.exec('CREATE TABLE millrace_meta (version INTEGER NOT NULL) STRICT; INSERT INTO millrace_meta VALUES (0)')
  }
  for (const migration of migrations.slice(from)) database.exec(migration)
  database.prepare('UPDATE millrace_meta SET version = ?').run(migrations.length)
}

/** The version of the tables; 0 where there are none yet. */
function versionOf(database: SqliteDatabase): number {
  if (!tablesOf(database).includes('millrace_meta')) return 0
  try {
    const row = database.prepare('SELECT version FROM millrace_meta').get() as { version: number } | undefined
    if (row !== undefined) return Number(row.version)
  } catch (error) {
    // There is no such column. Anything else, a lock say, is told as what it is.
    if ((error as { code?: unknown }).code === 'SQLITE_ERROR') throw foreign(database, 'millrace_meta', error)
    throw error
  }
  throw foreign(database, 'millrace_meta')
}

function refuseForeign(database: SqliteDatabase): void {
  const [taken] = tablesOf(database)
  if (taken !== undefined) throw foreign(database, taken)
}

function tablesOf(database: SqliteDatabase): string[] {
  const rows = database.prepare(`SELECT name FROM sqlite_schema WHERE name GLOB 'millrace_*' ORDER BY name`).all()
  return (rows as { name: string }[]).map(({ name }) => name)
}

function foreign(database: SqliteDatabase, table: string, cause?: unknown): BackendError {
  return new BackendError(`${database.name} has a table ${table} that is none of ours`, { cause })
}
