/**
 * The steps that run on a connection of the caller's, inside its transaction.
 */
import { statSync } from 'node:fs'
import type { EnqueueStatus, NewMessage, OwnTransaction, SettleCommand, SettleResult } from '../../driver.js'
import { InvalidOptionError } from '../../errors.js'
import { admit, planAdmission } from './admission.js'
import { fileOf, inTransaction, type SqliteDatabase } from './database.js'
import { asBackendError } from './errors.js'
import { openQueue } from './maintenance.js'
import type { QueueRow } from './queue-row.js'
import { migrate } from './schema.js'
import { settings } from './settings.js'
import { settle } from './settling.js'
import { Statements, Transaction } from './transaction.js'

/** The statements of the callers' connections, prepared once for each. */
const prepared = new WeakMap<SqliteDatabase, Statements>()

/** The verbs of one queue in a file. `isShared` tells the caller's database that this backend uses itself. */
export function ownTransactionOf(queue: string, path: string, isShared: (database: object) => boolean): OwnTransaction {
  const known = new WeakSet<object>()
  function run<T>(connection: object, work: (tx: Transaction, row: QueueRow) => T): T {
    if (!known.has(connection) && !isShared(connection)) refuseOther(connection, path)
    known.add(connection)
    const database = connection as SqliteDatabase
    try {
      return inTransaction(database, () => savepoint(database, (tx) => work(tx, openQueue(tx, queue))))
    } catch (error) {
      throw asBackendError(error, path)
    }
  }
  return {
    settings: (connection, proposed) => run(connection, (tx, row) => settings(tx, row, proposed)),
    enqueue: (connection, batch: readonly NewMessage[]): readonly EnqueueStatus[] =>
      run(connection, (tx, row) => admit(tx, row, batch, planAdmission(tx, row, batch))),
    settle: (connection, command: SettleCommand): SettleResult =>
      run(connection, (tx, row) => settle(tx, row, command)),
  }
}

/** What throws has changed nothing, and the caller's transaction can go on. */
function savepoint<T>(database: SqliteDatabase, work: (tx: Transaction) => T): T {
  database.exec('SAVEPOINT millrace')
  try {
    const tx = new Transaction(statementsOf(database))
    const value = work(tx)
    tx.save()
    database.exec('RELEASE millrace')
    return value
  } catch (error) {
    // Some errors have ended the whole transaction already (https://sqlite.org/lang_transaction.html).
    if (database.inTransaction) database.exec('ROLLBACK TO millrace; RELEASE millrace')
    throw error
  }
}

function statementsOf(database: SqliteDatabase): Statements {
  // Each time: what made the tables may have been rolled back.
  migrate(database)
  let statements = prepared.get(database)
  if (statements === undefined) {
    statements = new Statements(database)
    prepared.set(database, statements)
  }
  return statements
}

/** A message in another file would be one that nobody consumes. */
function refuseOther(connection: object, path: string): void {
  const database = connection as SqliteDatabase
  const fits = typeof database?.prepare === 'function' && typeof database.pragma === 'function'
  if (!fits || !isSameFile(fileOf(database), path))
    throw new InvalidOptionError('connection', connection, `a better-sqlite3 connection to ${path}`)
}

function isSameFile(one: string, other: string): boolean {
  try {
    const [a, b] = [statSync(one), statSync(other)]
    return a.ino === b.ino && a.dev === b.dev
  } catch {
    return false
  }
}
