/**
 * The SQLite backend: queues in a file, for any number of processes of one host.
 */
import { resolve } from 'node:path'
import type { Backend } from '../../driver.js'
import { InvalidOptionError } from '../../errors.js'
import { checkOptions, duration, oneOf } from '../../options.js'
import { SqliteBackend } from './backend.js'
import { type Durability, targetOf } from './connection.js'
import type { SqliteDatabase } from './database.js'

export type { Durability } from './connection.js'
export type { SqliteDatabase, SqliteStatement } from './database.js'

/** Options of {@link sqliteBackend}. */
export interface SqliteBackendOptions {
  /**
   * What a power cut can lose. `'full'`, the default: nothing that was answered. `'normal'`: what was answered in the
   * last moments, in one piece from some instant on; the file stays whole. A crash of the process loses nothing either way
   * (https://sqlite.org/pragma.html#pragma_synchronous).
   */
  readonly durability?: Durability
  /**
   * How long a request waits while another connection holds the lock of the file, before it counts as unanswered: from
   * then on a source tells `reconnecting`. It bounds no call; those ask again within 10 s, 5 s for a settlement.
   * Default 5 000.
   */
  readonly busyTimeoutMs?: number
}

/**
 * A backend that keeps its queues in a SQLite file, by better-sqlite3. Needs the package `better-sqlite3`.
 *
 * Many processes of one host may share the file; a network file system will not do. It is opened at first use and let
 * go when the last queue closes. Tables of the names `millrace_*` are made in it, and nothing else in it is touched,
 * so it may be a file that the application keeps its own tables in.
 *
 * `database` is a path (`':memory:'` for one that lives as long as the backend), or a database that the caller has
 * opened: a connection of our own is made to the same file then, and the caller's is neither used nor closed. Only a
 * database in memory, which no second connection reaches, is used itself, and never while the caller has a transaction
 * open in it.
 *
 * Throws `InvalidOptionError` for bad options. What is wrong with the file shows at first use: `BackendError` for one
 * that is no database, a directory, read-only or on a full disk, or that has tables of our names which are not ours;
 * `StoreVersionError` for one that a newer version of this library has written.
 *
 * @example
 * const backend = sqliteBackend('orders.db')
 * await using orders = new Queue<Order>('orders', { backend })
 */
export function sqliteBackend(database: string | SqliteDatabase, options: SqliteBackendOptions = {}): Backend {
  checkOptions(options, 'sqliteBackend', RULES)
  const { durability = 'full', busyTimeoutMs = 5_000 } = options
  return new SqliteBackend(targetOf(checked(database)), { durability, busyTimeoutMs })
}

const RULES = { durability: oneOf('full', 'normal'), busyTimeoutMs: duration(0) }

/** A path is made absolute now: the process may have gone elsewhere when it is opened. */
function checked(database: string | SqliteDatabase): string | SqliteDatabase {
  if (typeof database === 'string' && database !== '' && !database.includes('\0'))
    return database === ':memory:' ? database : resolve(database)
  if (isDatabase(database)) return database
  throw new InvalidOptionError('database', database, 'a path or an open database of better-sqlite3')
}

function isDatabase(value: unknown): value is SqliteDatabase {
  const candidate = value as Partial<SqliteDatabase> | null
  return typeof candidate === 'object' && typeof candidate?.prepare === 'function' && candidate.open === true
}
