/**
 * Gathers what is asked of one queue in one turn of the program into few calls of the scripts, in order.
 */
import { type RequestToken, tokenExpired } from '../../driver.js'
import { BackendError } from '../../errors.js'
import { Eventual } from '../../eventual.js'
import type { Argument } from './client.js'
import { asBackendError, refusalIn } from './errors.js'
import { answersKeyOf, keysOf } from './keys.js'
import { scriptOf } from './script.js'
import type { ScriptName } from './source.js'

/** The most messages and bytes of one call, where more than one step asks for them: what is more goes into the next. */
const MOST_MESSAGES = 1_000
const MOST_BYTES = 1024 * 1024
/** The server keeps answers for an hour. A request that was first sent longer ago is not sent again. */
const REPEATABLE_MS = 50 * 60_000

const NOW = Promise.resolve()

/** What is asked of the store in one step. */
export interface Step<R, T> {
  readonly verb: string
  readonly args: readonly Argument[]
  readonly decode: (reply: R) => T
  readonly token?: RequestToken
  /** It begins a call, so that the answers of the steps before it do not wait for its own. */
  readonly apart?: boolean
  /** How many messages it is about; default 1. */
  readonly messages?: number
  readonly bytes?: number
  /** Prefixes of other queues that it touches. */
  readonly others?: readonly string[]
}

/** A step whose answer is waited for. */
class PendingStep {
  readonly reply = new Eventual<unknown>()
  readonly script: ScriptName

  constructor(
    readonly step: Step<unknown, unknown>,
    readonly askedAt: number,
  ) {
    this.script = scriptOf(step.verb)
  }
}

/** A request that failed, and may be asked again. */
interface Unanswered {
  readonly token: RequestToken
  readonly askedAt: number
}

/** Calls a script on keys, with arguments, and answers one reply for each step. */
export type Call = (
  script: ScriptName,
  keys: readonly string[],
  args: readonly Argument[],
  bytes: number,
) => Promise<unknown[]>

export class Turns {
  readonly #prefix: string
  readonly #keys: readonly string[]
  readonly #call: Call
  readonly #queueOf: (prefix: string) => string
  readonly #unanswered = new Map<string, Unanswered>()
  #steps: PendingStep[] = []
  #lastSession: string | undefined
  #lastKeys: readonly string[] = []

  constructor(prefix: string, call: Call, queueOf: (prefix: string) => string) {
    this.#prefix = prefix
    this.#keys = keysOf(prefix)
    this.#call = call
    this.#queueOf = queueOf
  }

  /** Adds a step to the calls of this turn. */
  ask<R, T>(step: Step<R, T>): Eventual<T> {
    const askedAt = Date.now()
    if (step.token !== undefined && this.#isTooOld(step.token, askedAt))
      return Eventual.rejected(tokenExpired(step.token))
    const pending = new PendingStep(step as unknown as Step<unknown, unknown>, askedAt)
    // Not `queueMicrotask`, which makes an async resource for each call, at several times the cost.
    if (this.#steps.push(pending) === 1) void NOW.then(this.#flush)
    return pending.reply as Eventual<T>
  }

  readonly #flush = (): void => {
    const steps = this.#steps
    this.#steps = []
    for (const group of grouped(steps)) this.#send(group)
  }

  #send(steps: readonly PendingStep[]): void {
    const script = (steps[0] as PendingStep).script
    this.#call(script, this.#keysOf(steps), argumentsOf(steps), bytesOf(steps)).then(
      (replies) => {
        for (let index = 0; index < steps.length; index += 1)
          this.#conclude(steps[index] as PendingStep, replies[index])
      },
      (error) => this.#fail(steps, asBackendError(error)),
    )
  }

  #conclude({ step: { token, decode }, reply }: PendingStep, answer: unknown): void {
    if (token !== undefined && this.#unanswered.size > 0) this.#unanswered.delete(nameOf(token))
    const refusal = refusalIn(answer, this.#queueOf)
    if (refusal !== undefined) return reply.reject(refusal)
    let value: unknown
    try {
      value = decode(answer)
    } catch (cause) {
      return reply.reject(new BackendError('Redis answered what cannot be read', { cause }))
    }
    reply.resolve(value)
  }

  #fail(steps: readonly PendingStep[], error: Error): void {
    for (const { step, askedAt, reply } of steps) {
      const { token } = step
      if (token !== undefined && !this.#unanswered.has(nameOf(token)))
        this.#unanswered.set(nameOf(token), { token, askedAt })
      reply.reject(error)
    }
  }

  #isTooOld(token: RequestToken, now: number): boolean {
    if (this.#unanswered.size === 0) return false
    const { askedAt = now } = this.#unanswered.get(nameOf(token)) ?? {}
    for (const [name, { token: earlier }] of this.#unanswered) {
      const isGivenUp = earlier.session === token.session && earlier.seq < token.floor
      if (isGivenUp) this.#unanswered.delete(name)
    }
    return now - askedAt > REPEATABLE_MS
  }

  /** All keys that the steps may touch. Nearly always they are those of the last call. */
  #keysOf(steps: readonly PendingStep[]): readonly string[] {
    const session = steps[0]?.step.token?.session
    if (session === undefined || steps.some((step) => !isOf(session, step))) return this.#allKeysOf(steps)
    if (session !== this.#lastSession) {
      this.#lastSession = session
      this.#lastKeys = this.#allKeysOf(steps)
    }
    return this.#lastKeys
  }

  #allKeysOf(steps: readonly PendingStep[]): readonly string[] {
    const keys = new Set(this.#keys)
    for (const { step } of steps) {
      const { token, others = [] } = step
      if (token !== undefined) keys.add(answersKeyOf(this.#prefix, token.session))
      for (const other of others) for (const key of keysOf(other)) keys.add(key)
    }
    return [...keys]
  }
}

/** A step of this session that touches no other queue. */
function isOf(session: string, { step: { token, others } }: PendingStep): boolean {
  return token?.session === session && (others === undefined || others.length === 0)
}

function argumentsOf(steps: readonly PendingStep[]): Argument[] {
  const args: Argument[] = [steps.length]
  for (const { step } of steps) {
    const { verb, token, args: own } = step
    args.push(verb, token?.session ?? '', token?.seq ?? 0, token?.floor ?? 0, own.length)
    for (const each of own) args.push(each)
  }
  return args
}

/** Cut where the script changes, and before a call would keep the server long. */
function grouped(steps: readonly PendingStep[]): PendingStep[][] {
  const groups: PendingStep[][] = []
  let group: PendingStep[] = []
  let messages = 0
  let bytes = 0
  for (const pending of steps) {
    const { messages: moreMessages = 1, bytes: moreBytes = 0 } = pending.step
    const fits = messages + moreMessages <= MOST_MESSAGES && bytes + moreBytes <= MOST_BYTES
    if (group.length === 0 || !fits || pending.step.apart || pending.script !== group[0]?.script) {
      group = []
      groups.push(group)
      messages = 0
      bytes = 0
    }
    group.push(pending)
    messages += moreMessages
    bytes += moreBytes
  }
  return groups
}

function bytesOf(steps: readonly PendingStep[]): number {
  let bytes = 0
  for (const { step } of steps) bytes += step.bytes ?? 0
  return bytes
}

function nameOf({ session, seq }: RequestToken): string {
  return `${session}:${seq}`
}
