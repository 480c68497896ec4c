/**
 * Asks the store until it answers.
 *
 * A request is sent again, with the same token, when it failed as unavailable or when nothing came back for a while;
 * whichever attempt answers first counts. It gives up when its bound has passed: what it asked for is then unknown.
 */
import type { Reply, RequestToken } from '../driver.js'
import { BackendUnavailableError } from '../errors.js'
import { Eventual } from '../eventual.js'
import type { Clock, Timer } from './clock.js'
import type { Session } from './session.js'

/** How long one attempt may be silent before it is sent again. */
const ATTEMPT_MS = 5_000
const FIRST_BACKOFF_MS = 50
const LONGEST_BACKOFF_MS = 2_000

/** What requests need from their queue. */
export interface RequestContext {
  readonly clock: Clock
  readonly session: Session
  /** An attempt failed; the request goes on. */
  onDown(error: unknown): void
  /** A request that had failed before was answered. */
  onUp(): void
}

export class Request<T> {
  readonly answer = new Eventual<T>()
  /** When the first attempt was sent: what the store did, it did no earlier. */
  readonly sentAt: number
  lastSentAt: number

  private readonly token: RequestToken
  private failures = 0
  private retry: Timer | undefined
  private deadline: Timer | undefined
  private lastError: unknown

  constructor(
    private readonly context: RequestContext,
    private readonly call: (token: RequestToken) => Reply<T>,
    private readonly boundMs?: number,
  ) {
    this.token = context.session.begin()
    this.sentAt = context.clock.now()
    this.lastSentAt = this.sentAt
    this.attempt()
    if (boundMs !== undefined) this.limit(boundMs)
  }

  /** Gives up after so many milliseconds from now, if there is no answer by then. */
  limit(boundMs: number): void {
    if (!this.answer.pending) return
    this.deadline?.stop()
    this.deadline = this.context.clock.after(boundMs, () => this.giveUp())
  }

  private attempt(): void {
    this.lastSentAt = this.context.clock.now()
    try {
      this.call(this.token).then(
        (value) => this.succeed(value),
        (error) => this.fail(error),
      )
    } catch (error) {
      this.fail(error)
    }
    if (this.answer.pending)
      this.retry ??= this.again(Math.min(ATTEMPT_MS, (this.boundMs ?? Number.POSITIVE_INFINITY) / 3))
  }

  private again(delayMs: number): Timer {
    return this.context.clock.after(delayMs, () => {
      this.retry = undefined
      this.attempt()
    })
  }

  private succeed(value: T): void {
    if (!this.answer.pending) return
    if (this.failures > 0) this.context.onUp()
    this.end()
    this.answer.resolve(value)
  }

  private fail(error: unknown): void {
    if (!this.answer.pending) return
    if (!(error instanceof BackendUnavailableError)) {
      this.end()
      this.answer.reject(error)
      return
    }
    this.lastError = error
    this.failures += 1
    if (this.failures === 1) this.context.onDown(error)
    this.retry?.stop()
    this.retry = this.again(this.backoffMs())
  }

  private giveUp(): void {
    if (!this.answer.pending) return
    this.end()
    this.answer.reject(new BackendUnavailableError('the backend did not answer in time', { cause: this.lastError }))
  }

  private end(): void {
    this.retry?.stop()
    this.deadline?.stop()
    this.context.session.end(this.token)
  }

  private backoffMs(): number {
    const fullMs = Math.min(FIRST_BACKOFF_MS * 2 ** (this.failures - 1), LONGEST_BACKOFF_MS)
    return fullMs * (0.5 + this.context.clock.random() / 2)
  }
}
