/**
 * The errors of SQLite as those of this library.
 */
import { BackendError, BackendUnavailableError, MillraceError } from '../../errors.js'

/** Somebody else holds the lock: nothing was done, and asking again may help. */
export function isBusy(error: unknown): boolean {
  if (error instanceof BackendUnavailableError) return true
  const code = codeOf(error)
  return code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED') || isIterating(error)
}

/** The caller is in the middle of a query, on a connection that it shares with us. */
function isIterating(error: unknown): boolean {
  return error instanceof TypeError && error.message.includes('busy executing')
}

/** The typed error for what a statement threw. */
export function asBackendError(error: unknown, path: string): MillraceError {
  if (error instanceof MillraceError) return error
  if (isBusy(error)) return busyError(path, error)
  const problem = PROBLEMS.find(([prefix]) => codeOf(error).startsWith(prefix))?.[1] ?? 'cannot be used'
  return new BackendError(`${path} ${problem}: ${messageOf(error)}`, { cause: error })
}

export function busyError(path: string, cause: unknown): BackendUnavailableError {
  if (cause instanceof BackendUnavailableError) return cause
  return new BackendUnavailableError(`${path} is locked by another connection`, { cause })
}

/** What is wrong with the file, by the code that SQLite gives (https://sqlite.org/rescode.html). */
const PROBLEMS: readonly (readonly [string, string])[] = [
  ['SQLITE_NOTADB', 'is not a SQLite database'],
  ['SQLITE_CORRUPT', 'is damaged'],
  ['SQLITE_FULL', 'has no room left on its disk'],
  ['SQLITE_READONLY', 'cannot be written to'],
  ['SQLITE_CANTOPEN', 'cannot be opened'],
  ['SQLITE_PERM', 'may not be accessed'],
  ['SQLITE_IOERR', 'cannot be read or written'],
]

function codeOf(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' ? code : ''
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
