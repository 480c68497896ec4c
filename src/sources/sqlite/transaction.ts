/**
 * One transaction as the steps see it: the instant at which it happens, the rows of the queues it touches, and its
 * statements. Nothing of it outlives a rollback, so a step that was rolled back can simply be run again.
 */

import { StoreVersionError } from '../../errors.js'
import type { SqliteDatabase, SqliteStatement } from './database.js'
import { type Counters, INSERT_QUEUE, QueueRow, SELECT_QUEUE, UPDATE_QUEUE } from './queue-row.js'
import { MIGRATIONS } from './schema.js'

/**
 * The time of the host, which all processes that share the file share too. SQLite's own clock and not the one of
 * JavaScript, so that what a process does to its `Date` shifts no lease.
 */
const SELECT_HEAD = `SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now, version FROM millrace_meta`

/** Prepares each statement once per connection. */
export class Statements {
  readonly #prepared = new Map<string, SqliteStatement>()

  constructor(readonly database: SqliteDatabase) {}

  of(sql: string): SqliteStatement {
    let statement = this.#prepared.get(sql)
    if (statement === undefined) {
      statement = this.database.prepare(sql)
      // A connection of the caller's may be set to give bigints.
      statement.safeIntegers(false)
      this.#prepared.set(sql, statement)
    }
    return statement
  }
}

export class Transaction {
  /** Epoch milliseconds. */
  readonly now: number
  readonly statements: Statements
  readonly #queues = new Map<string, QueueRow>()

  constructor(statements: Statements) {
    this.statements = statements
    const { now, version } = statements.of(SELECT_HEAD).get() as { now: number; version: number }
    // Another process may have brought the tables to a newer version since we opened them.
    if (version > MIGRATIONS.length) throw new StoreVersionError(statements.database.name, version, MIGRATIONS.length)
    this.now = now
  }

  /** The queues that were touched so far. */
  get queues(): Iterable<QueueRow> {
    return this.#queues.values()
  }

  sql(text: string): SqliteStatement {
    return this.statements.of(text)
  }

  /** The row of a queue, made now if there is none. `opened` runs when this transaction sees it for the first time. */
  queue(name: string, opened: (row: QueueRow) => unknown): QueueRow {
    let row = this.#queues.get(name)
    if (row === undefined) {
      row = this.#load(name)
      this.#queues.set(name, row)
      opened(row)
    }
    return row
  }

  /** Writes what has changed in the rows of the queues. */
  save(): void {
    for (const row of this.#queues.values()) {
      const { changes } = row
      if (changes !== undefined) this.sql(UPDATE_QUEUE).run(...changes)
    }
  }

  #load(name: string): QueueRow {
    let stored = this.sql(SELECT_QUEUE).get(name)
    if (stored === undefined) {
      this.sql(INSERT_QUEUE).run(name)
      stored = this.sql(SELECT_QUEUE).get(name)
    }
    return new QueueRow(name, stored as Counters & { id: number })
  }
}
