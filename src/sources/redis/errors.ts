/**
 * The errors of Redis and its client as those of this library.
 */
import {
  BackendError,
  BackendUnavailableError,
  LimitError,
  MillraceError,
  QueueFullError,
  StoreVersionError,
  TokenExpiredError,
} from '../../errors.js'

/**
 * What the server says when it is not to be had now: it is loading, fails over, cannot write to its disk, or is no
 * master any more. All of that may pass.
 */
const PASSING =
  // Before version 7 the words of a command that a script calls come inside a sentence.
  /^(?:ERR Error running script .*: )?-?(LOADING|BUSY|READONLY|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|MOVED|ASK|UNBLOCKED|NOREPLICAS|MISCONF|UNKILLABLE|NOSCRIPT)\b/

const REFUSAL_MARK = '!'.charCodeAt(0)

/** The typed error for a command that failed: what the server refused is final, all else may be asked again. */
export function asBackendError(error: unknown): MillraceError {
  if (error instanceof MillraceError) return error
  const { message = String(error), name } = (error ?? {}) as Partial<Error>
  const cause = bareError(error)
  if (name !== 'ReplyError') return new BackendUnavailableError(`Redis cannot be reached: ${message}`, { cause })
  if (PASSING.test(message)) return new BackendUnavailableError(`Redis is not to be had now: ${message}`, { cause })
  return new BackendError(`Redis refused: ${message}`, { cause })
}

/** The client puts the command, with its payloads and passwords, on the errors that it raises. They stay unseen. */
function bareError(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const bare = new Error(error.message)
  bare.name = error.name
  if ('code' in error) Object.assign(bare, { code: error.code })
  return bare
}

/** A script that this server does not know, after a restart, a failover or `SCRIPT FLUSH`. */
export function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT')
}

/** Every reply passes here, and some begin with a long list: only a mark of one byte is looked at. */
function isRefusal(mark: unknown): boolean {
  return mark instanceof Uint8Array && mark.byteLength === 1 && mark[0] === REFUSAL_MARK
}

/** The error that a step answered with, or undefined. */
export function refusalIn(reply: unknown, queueOf: (prefix: string) => string): MillraceError | undefined {
  if (!Array.isArray(reply) || !isRefusal(reply[0])) return undefined
  const [, kind, ...rest] = reply.map(String)
  const [first = '', second = '', third = ''] = rest
  switch (kind) {
    case 'full':
      return new QueueFullError(queueOf(first), second as 'maxLength' | 'maxBytes', Number(third))
    case 'limit':
      return new LimitError(first, Number(second), Number(third))
    case 'format':
      return new StoreVersionError('the Redis server', Number(first), Number(second))
    case 'expired':
      return new TokenExpiredError('a request is older than the answers that are kept')
    default:
      return new BackendError(`Redis answered ${kind}`)
  }
}
