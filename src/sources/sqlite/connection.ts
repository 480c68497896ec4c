/**
 * The connection of a backend: made at first use, with the settings that its promises rest on.
 */
import Database from 'better-sqlite3'
import { fileOf, type SqliteConstructor, type SqliteDatabase } from './database.js'
import { checkTables, migrate } from './schema.js'
import { Statements } from './transaction.js'

/**
 * How many pages the log takes before they are copied into the file. The pages at both ends of a queue are written
 * again and again: the longer they gather, the fewer copies. Four times SQLite's default saved a quarter of the time
 * of consuming where it was measured, and the log stays under 20 MB.
 */
const CHECKPOINT_PAGES = 4_000
const CACHE_KIB = 16_384

/** What a commit survives. */
export type Durability = 'full' | 'normal'

/** Where the connection leads. */
export interface Target {
  readonly path: string
  /** The database itself where no other connection can reach it: one in memory that the caller opened. */
  readonly shared?: SqliteDatabase
  /** Opens a connection; that of the caller's own database, or of better-sqlite3. */
  readonly open: SqliteConstructor
  readonly readonly: boolean
  readonly fileMustExist: boolean
}

/** The target of a path, or of a database that the caller has opened, which is left alone wherever that can be. */
export function targetOf(database: string | SqliteDatabase): Target {
  if (typeof database === 'string')
    return { path: database, open: Database as SqliteConstructor, readonly: false, fileMustExist: false }
  const open = database.constructor as SqliteConstructor
  const target = { path: fileOf(database), open, readonly: database.readonly, fileMustExist: true }
  return database.memory ? { ...target, shared: database } : target
}

/** Whether nothing outlives the connection. */
export function isInMemory({ path, shared }: Target): boolean {
  return shared !== undefined || path === ':memory:'
}

export class Connection {
  readonly #target: Target
  readonly #durability: Durability
  #statements: Statements | undefined

  constructor(target: Target, durability: Durability) {
    this.#target = target
    this.#durability = durability
  }

  /** Throws what SQLite throws; nothing is left open then. */
  get statements(): Statements {
    this.#statements ??= new Statements(this.#open())
    return this.#statements
  }

  close(): void {
    if (this.#target.shared === undefined) this.#statements?.database.close()
    this.#statements = undefined
  }

  #open(): SqliteDatabase {
    const { path, shared, open: Open, readonly, fileMustExist } = this.#target
    if (shared !== undefined) {
      migrate(shared)
      return shared
    }
    // No busy timeout: SQLite would wait on this thread, and everything else in the process with it.
    const database = new Open(path, { timeout: 0, readonly, fileMustExist })
    try {
      // Before anything is changed: the mode of the log is written into the file.
      checkTables(database)
      database.pragma('journal_mode = WAL')
      database.pragma(`synchronous = ${this.#durability}`)
      database.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`)
      database.pragma(`cache_size = -${CACHE_KIB}`)
      migrate(database)
      return database
    } catch (error) {
      database.close()
      throw error
    }
  }
}
