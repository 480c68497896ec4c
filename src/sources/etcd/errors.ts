/**
 * The errors of etcd and its client as those of this library.
 */
import { BackendError, BackendUnavailableError, MillraceError } from '../../errors.js'

/** What the server says when it is not to be had now, or not by this member. All of that may pass. */
const PASSING =
  /no leader|leader changed|request timed out|timed out|too many requests|invalid auth token|not capable|server stopped|connection|learner|unhealthy|mvcc: .*compacted|future revision/i

/** What it says when it has looked at the request and will not do it. */
const REFUSING =
  /no space|space exceeded|permission denied|authentication failed|invalid user|user name is empty|too large|too many operations|duplicate key|alarm|corrupt|auth.*not enabled|ResourceExhausted|larger than max/i

/** gRPC's words for a call that may or may not have been carried out, or was not at all. */
const UNAVAILABLE =
  /UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED|ABORTED|INTERNAL|UNKNOWN|OUT_OF_RANGE|RESOURCE_EXHAUSTED|closed/

/** The typed error for a call that failed: what the server refused is final, all else may be asked again. */
export function asBackendError(error: unknown): MillraceError {
  if (error instanceof MillraceError) return error
  const message = error instanceof Error ? error.message : String(error)
  const cause = bareError(error)
  if (REFUSING.test(message)) return new BackendError(`etcd refused: ${message}`, { cause })
  if (PASSING.test(message) || UNAVAILABLE.test(message) || !(error instanceof Error) || isStreamEnd(message)) {
    return new BackendUnavailableError(`etcd cannot be reached: ${message}`, { cause })
  }
  return new BackendError(`etcd refused: ${message}`, { cause })
}

/** The server's space is used up: it takes nothing until somebody makes room. */
export function isOutOfSpace(error: unknown): boolean {
  return error instanceof BackendError && /space exceeded|no space|NOSPACE/i.test(error.message)
}

/** A lease that has expired or was revoked. */
export function isLeaseGone(error: unknown): boolean {
  return error instanceof Error && /lease not found|expired or revoked/.test(`${error.message} ${String(error.cause)}`)
}

function isStreamEnd(message: string): boolean {
  return /stream|watch was cancelled/.test(message)
}

/** Errors of gRPC carry the metadata of the call, with its token. They stay unseen. */
function bareError(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const bare = new Error(error.message)
  bare.name = error.name
  return bare
}
