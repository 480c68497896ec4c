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
  /** A request that had failed is asked no more: it was answered, or given up. */
  onEnded(): void
  /** A first attempt failed; the request goes on. */
  onUnanswered(error: unknown): void
  /** A request that had failed before was answered. */
  onUp(): void
}

/** Asks once; a request is made of it only when the answer is not there at once. */
export function ask<T>(
  context: RequestContext,
  call: (token: RequestToken) => Reply<T>,
  boundMs?: number,
  onPending?: (request: Request<T>) => void,
): Eventual<T> {
  const token = context.session.begin()
  const reply = attempt(call, token)
  const answered = reply instanceof Eventual && reply.fulfilled
  context.session.called(token, answered)
  if (answered) return reply
  const request = new Request(context, call, token, boundMs)
  onPending?.(request)
  request.start(reply)
  return request.answer
}

function attempt<T>(call: (token: RequestToken) => Reply<T>, token: RequestToken): Reply<T> {
  try {
    return call(token)
  } catch (error) {
    return Eventual.rejected(error)
  }
}

export class Request<T> {
  readonly answer = new Eventual<T>()
  lastSentAt: number

  private failures = 0
  private retry: Timer | undefined
  private deadline: Timer | undefined
  private limitAt = Number.POSITIVE_INFINITY
  private lastError: unknown

  constructor(
    private readonly context: RequestContext,
    private readonly call: (token: RequestToken) => Reply<T>,
    private readonly token: RequestToken,
    private readonly boundMs: number | undefined,
  ) {
    this.lastSentAt = context.clock.now()
  }

  /** Goes on from the reply of the first call. */
  start(reply: Reply<T>): void {
    if (this.boundMs !== undefined) this.limit(this.boundMs)
    this.follow(reply)
  }

  /** Gives up after so many milliseconds from now, if there is no answer by then. A later limit than before is none. */
  limit(boundMs: number): void {
    const limitAt = this.context.clock.now() + boundMs
    if (!this.answer.pending || limitAt >= this.limitAt) return
    this.limitAt = limitAt
    this.deadline?.stop()
    this.deadline = this.context.clock.after(boundMs, () => this.giveUp())
  }

  private follow(reply: Reply<T>): void {
    reply.then(
      (value) => this.succeed(value),
      (error) => this.fail(error),
    )
    if (this.answer.pending)
      this.retry ??= this.again(Math.min(ATTEMPT_MS, (this.boundMs ?? Number.POSITIVE_INFINITY) / 3))
  }

  private again(delayMs: number): Timer {
    return this.context.clock.after(delayMs, () => {
      this.retry = undefined
      if (this.failures === 0) this.noteFailure(new BackendUnavailableError('the backend does not answer'))
      this.lastSentAt = this.context.clock.now()
      this.follow(attempt(this.call, this.token))
    })
  }

  private noteFailure(error: unknown): void {
    this.lastError = error
    this.failures += 1
    if (this.failures > 1) return
    this.context.onUnanswered(error)
  }

  private succeed(value: T): void {
    if (!this.answer.pending) return
    this.end()
    if (this.failures > 0) this.context.onUp()
    this.answer.resolve(value)
  }

  private fail(error: unknown): void {
    if (!this.answer.pending) return
    if (!(error instanceof BackendUnavailableError)) {
      this.end()
      this.answer.reject(error)
      return
    }
    this.noteFailure(error)
    this.retry?.stop()
    this.retry = this.again(this.backoffMs())
  }

  private giveUp(): void {
    if (!this.answer.pending) return
    this.end()
    this.answer.reject(new BackendUnavailableError('the backend did not answer in time', { cause: this.lastError }))
  }

  private end(): void {
    if (this.failures > 0) this.context.onEnded()
    this.retry?.stop()
    this.deadline?.stop()
    this.context.session.end(this.token)
  }

  private backoffMs(): number {
    const fullMs = Math.min(FIRST_BACKOFF_MS * 2 ** (this.failures - 1), LONGEST_BACKOFF_MS)
    return fullMs * (0.5 + this.context.clock.random() / 2)
  }
}
