/**
 * Every error that Millrace raises, one class per condition.
 *
 * Each carries a stable `code` to branch on and, where another error led to it, that error as `cause`. A cancel
 * is the one condition that keeps the platform's own name: `name === 'AbortError'`.
 */

/** The base of all errors of this library. `code` is stable across versions; messages are for people. */
export abstract class MillraceError extends Error {
  abstract readonly code: `ERR_MILLRACE_${string}`

  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
  }
}

/** An option, a name or an argument was refused before any I/O. `field` and `value` say which. */
export class InvalidOptionError extends MillraceError {
  readonly code = 'ERR_MILLRACE_INVALID_OPTION'

  constructor(
    readonly field: string,
    readonly value: unknown,
    expected: string,
  ) {
    super(`${field} must be ${expected}, not ${describeValue(value)}`)
  }
}

/** A payload or a result cannot be stored as it is. `field` is the path inside it. */
export class PayloadError extends MillraceError {
  readonly code = 'ERR_MILLRACE_PAYLOAD'

  constructor(
    readonly field: string,
    readonly value: unknown,
    problem: string,
    options?: ErrorOptions,
  ) {
    super(`${field} ${problem}`, options)
  }
}

/** A payload was refused by the queue's schema. `issues` are the schema's own. */
export class SchemaError extends MillraceError {
  readonly code = 'ERR_MILLRACE_SCHEMA'

  constructor(
    readonly field: string,
    readonly value: unknown,
    readonly issues: readonly SchemaIssue[],
  ) {
    super(`${field} does not fit the schema: ${issues.map(describeIssue).join('; ')}`)
  }
}

/** One thing that a schema found wrong, in the form of Standard Schema. */
export interface SchemaIssue {
  readonly message: string
  readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined
}

/** A stored payload that its codec or the schema refuses. Such a message goes to the dead letters. */
export class DecodeError extends MillraceError {
  readonly code = 'ERR_MILLRACE_DECODE'
}

/** A message, a batch or a reply is larger than the backend or the queue allows. Nothing was stored. */
export class LimitError extends MillraceError {
  readonly code = 'ERR_MILLRACE_LIMIT'

  constructor(
    readonly limit: string,
    readonly maximum: number,
    readonly value: number,
  ) {
    super(`${limit} allows ${maximum}, not ${value}`)
  }
}

/** The queue is at one of its limits and `whenFull` is `'reject'`. Nothing was stored. */
export class QueueFullError extends MillraceError {
  readonly code = 'ERR_MILLRACE_QUEUE_FULL'

  constructor(
    readonly queue: string,
    readonly limit: 'maxLength' | 'maxBytes',
    readonly maximum: number,
  ) {
    super(`queue ${describeValue(queue)} is full: ${limit} is ${maximum}`)
  }
}

/** This process asks for a shared setting that differs from the one stored with the queue. */
export class SettingsConflictError extends MillraceError {
  readonly code = 'ERR_MILLRACE_SETTINGS_CONFLICT'

  constructor(
    readonly queue: string,
    readonly field: string,
    readonly value: unknown,
    readonly stored: unknown,
  ) {
    super(
      `queue ${describeValue(queue)}: ${field} is ${describeValue(value)} here but ${describeValue(stored)} in the store; ` +
        'leave it out to take the stored value, or change it for all with queue.configure()',
    )
  }
}

/** The object was closed, or a stopped source was subscribed to. */
export class ClosedError extends MillraceError {
  readonly code = 'ERR_MILLRACE_CLOSED'

  constructor(readonly what: string) {
    super(`${what} is closed`)
  }
}

/** The backend cannot do this by nature; `feature` is the flag that says so. */
export class UnsupportedError extends MillraceError {
  readonly code = 'ERR_MILLRACE_UNSUPPORTED'

  constructor(
    readonly backend: string,
    readonly feature: string,
    message = `the ${backend} backend does not support ${feature}`,
  ) {
    super(message)
  }
}

/**
 * The backend could not be reached, or did not answer in time. The engine asks again with the same token while
 * the caller's bound allows; the caller sees this error only when that has run out.
 */
export class BackendUnavailableError extends MillraceError {
  readonly code = 'ERR_MILLRACE_BACKEND_UNAVAILABLE'
}

/** The backend answered, and refused: no space, read-only, a record it cannot read. Asking again will not help. */
export class BackendError extends MillraceError {
  readonly code = 'ERR_MILLRACE_BACKEND'
}

/** The store was written by a newer version of this library. Nothing in it was touched. */
export class StoreVersionError extends MillraceError {
  readonly code = 'ERR_MILLRACE_STORE_VERSION'

  constructor(
    /** Its path or address. */
    readonly store: string,
    /** The version that its tables have. */
    readonly version: number,
    /** The newest version that this library knows. */
    readonly supported: number,
  ) {
    super(`${store} has version ${version} of the tables, and this library knows none above ${supported}`)
  }
}

/** A request is older than the answers that the backend remembers. It was not run. */
export class TokenExpiredError extends MillraceError {
  readonly code = 'ERR_MILLRACE_TOKEN_EXPIRED'
}

/** A settlement was sent and no answer came within its bound: it may or may not have been applied. */
export class SettlementUnknownError extends MillraceError {
  readonly code = 'ERR_MILLRACE_SETTLEMENT_UNKNOWN'
}

/** The phase in which a cancel found a delivery or a consumer; part of the reason that signals carry. */
export type CancelPhase = 'idle' | 'claiming' | 'handling'

/** The consumer was cancelled. `name` is `'AbortError'`; `cause` is the caller's own reason where there is one. */
export class CancelledError extends MillraceError {
  readonly code = 'ERR_MILLRACE_CANCELLED'

  constructor(
    readonly phase: CancelPhase,
    options?: ErrorOptions,
  ) {
    super(`cancelled while ${phase}`, options)
    this.name = 'AbortError'
  }
}

/** The lease of a claim has lapsed, or the claim now belongs to somebody else. Settling it answers `'stale'`. */
export class LeaseLostError extends MillraceError {
  readonly code = 'ERR_MILLRACE_LEASE_LOST'

  constructor(
    readonly id: string,
    readonly why: 'expired' | 'taken' | 'capped',
  ) {
    super(`the lease of message ${describeValue(id)} was lost: ${why}`)
  }
}

/** A handler ran longer than its `timeout`. */
export class HandlerTimeoutError extends MillraceError {
  readonly code = 'ERR_MILLRACE_HANDLER_TIMEOUT'

  constructor(readonly timeoutMs: number) {
    super(`the handler ran longer than ${timeoutMs} ms`)
  }
}

/** Somebody called `queue.cancel(id)` on the message that is being handled. */
export class MessageCancelledError extends MillraceError {
  readonly code = 'ERR_MILLRACE_MESSAGE_CANCELLED'

  constructor(readonly id: string) {
    super(`message ${describeValue(id)} was cancelled`)
    this.name = 'AbortError'
  }
}

/** How a value is shown in a message: short, on one line, and telling `'1'` from `1`. */
export function describeValue(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}...` : value)
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'function') return value.name === '' ? 'a function' : `the function ${value.name}`
  if (typeof value !== 'object' || value === null) return String(value)
  const kind = Array.isArray(value) ? 'array' : (Object.getPrototypeOf(value)?.constructor?.name ?? 'object')
  return `an instance of ${kind}`
}

function describeIssue(issue: SchemaIssue): string {
  const path = issue.path?.map((step) => String(typeof step === 'object' ? step.key : step)).join('.')
  return path === undefined || path === '' ? issue.message : `${path}: ${issue.message}`
}
