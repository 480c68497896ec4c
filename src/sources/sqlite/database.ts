/**
 * What this backend uses of better-sqlite3, so that our types need none of its own. `undefined` is a row that is not
 * there; a statement runs at once, on this thread.
 */
export interface SqliteStatement {
  run(...values: unknown[]): { readonly changes: number }
  get(...values: unknown[]): unknown
  all(...values: unknown[]): unknown[]
  /** Whether integers come as bigints. */
  safeIntegers(toggle: boolean): unknown
}

/** An open database of better-sqlite3, or of a package with the same interface. */
export interface SqliteDatabase {
  /** The path that it was opened with. */
  readonly name: string
  /** Whether it lives in memory, where no second connection can reach it. */
  readonly memory: boolean
  readonly readonly: boolean
  readonly open: boolean
  readonly inTransaction: boolean
  prepare(sql: string): SqliteStatement
  exec(sql: string): unknown
  pragma(source: string, options?: { simple?: boolean }): unknown
  close(): unknown
}

/** Opens further connections, like the one that it was taken from. */
export type SqliteConstructor = new (
  path: string,
  options: { readonly timeout: number; readonly readonly?: boolean; readonly fileMustExist?: boolean },
) => SqliteDatabase

/** The file of a database, whatever path it was opened with and wherever the process has gone since. */
export function fileOf(database: SqliteDatabase): string {
  const files = database.pragma('database_list') as { readonly name: string; readonly file: string }[]
  return files.find(({ name }) => name === 'main')?.file || database.name
}

/** Runs `work` in the transaction that is open, or in one of its own; what throws leaves none behind. */
export function inTransaction<T>(database: SqliteDatabase, work: () => T): T {
  if (database.inTransaction) return work()
  database.exec('BEGIN IMMEDIATE')
  try {
    const value = work()
    database.exec('COMMIT')
    return value
  } finally {
    if (database.inTransaction) database.exec('ROLLBACK')
  }
}
