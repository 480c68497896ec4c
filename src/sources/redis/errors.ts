/**
 * The errors of Redis and its client as those of this library.
 */
import {
  BackendError,
  BackendUnavailableError,
  LimitError,
  type MillraceError,
  QueueFullError,
  TokenExpiredError,
} from '../../errors.js'

/** What the server says when it will not do it now, or not at all. The rest of its answer is for people. */
const REFUSALS = /^(OOM|READONLY|MISCONF|NOAUTH|NOPERM|WRONGPASS|WRONGTYPE|CROSSSLOT|NOREPLICAS|ERR)\b/

/** The typed error for a command that failed: what the server refused is final, all else may be asked again. */
export function asBackendError(error: unknown): MillraceError {
  const { message = String(error), name } = (error ?? {}) as Partial<Error>
  if (name === 'ReplyError' && REFUSALS.test(message))
    return new BackendError(`Redis refused: ${message}`, { cause: error })
  return new BackendUnavailableError(`Redis cannot be reached: ${message}`, { cause: error })
}

/** A script that this server does not know, after a restart or `SCRIPT FLUSH`. */
export function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT')
}

/** The error that a step answered with, or undefined. */
export function refusalIn(reply: unknown, queueOf: (prefix: string) => string): MillraceError | undefined {
  if (!Array.isArray(reply) || String(reply[0]) !== '!') return undefined
  const [, kind, ...rest] = reply.map(String)
  switch (kind) {
    case 'full':
      return new QueueFullError(queueOf(rest[0] ?? ''), rest[1] as 'maxLength' | 'maxBytes', Number(rest[2]))
    case 'limit':
      return new LimitError(rest[0] ?? '', Number(rest[1]), Number(rest[2]))
    case 'expired':
      return new TokenExpiredError('a request is older than the answers that are kept')
    default:
      return new BackendError(`Redis answered ${kind}`)
  }
}
