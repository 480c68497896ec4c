/**
 * Failure policies: what becomes of a message whose handler failed.
 */
import type { Delivery } from '../delivery.js'
import type { Queue } from '../queue.js'

/** What a policy decides. `undefined` leaves it to the next one. */
export type Decision =
  | { readonly kind: 'requeue'; readonly delayMs: number }
  | { readonly kind: 'dead-letter'; readonly to: Queue<never> | undefined }
  /** Run the handler again under the same claim, after a pause. */
  | { readonly kind: 'again'; readonly delayMs: number }

/** `run` is how often the handler has run under this claim, from 1; `random` is from 0 up to 1. */
export type Policy = (error: unknown, delivery: Delivery<unknown>, run: number, random: number) => Decision | undefined

/** A growing delay. */
export interface Backoff {
  /** The first delay. Default 1000. */
  readonly baseMs?: number
  /** Each delay is this many times the last. Default 2. */
  readonly factor?: number
  /** The longest delay. Default 300 000. */
  readonly maxMs?: number
  /** The share of the delay that is left to chance, 0 to 1. Default 0.2: up to a fifth less. */
  readonly jitter?: number
}

const DEFAULT_BACKOFF = { baseMs: 1_000, factor: 2, maxMs: 300_000, jitter: 0.2 }

/** The delay after the given attempt, from 1. `random` is from 0 up to 1. */
export function backoffMs(backoff: Backoff, attempt: number, random: number): number {
  const { baseMs, factor, maxMs, jitter } = { ...DEFAULT_BACKOFF, ...backoff }
  const fullMs = Math.min(baseMs * factor ** (attempt - 1), maxMs)
  return fullMs * (1 - jitter * random)
}

/** Requeue after a delay that depends on the attempt. */
export function laterPolicy(delayMs: (attempt: number, error: unknown, random: number) => number): Policy {
  return (error, { attempt }, _run, random) => ({ kind: 'requeue', delayMs: usable(delayMs(attempt, error, random)) })
}

/** Run again, so many times, after a pause that grows from `baseMs` (default: none). */
export function againPolicy(times: number, backoff: Backoff): Policy {
  return (_error, _delivery, run, random) =>
    run > times
      ? undefined
      : { kind: 'again', delayMs: backoff.baseMs === undefined ? 0 : backoffMs(backoff, run, random) }
}

/** Give up, for the failures that `when` names. */
export function deadLetterPolicy(
  to: Queue<never> | undefined,
  when?: (error: unknown, delivery: Delivery<unknown>) => boolean,
): Policy {
  return (error, delivery) => (when && !when(error, delivery) ? undefined : { kind: 'dead-letter', to })
}

/** Asks the policies, the one nearest the handler first; the default is to requeue with a growing delay. */
export function decide(
  policies: readonly Policy[] | undefined,
  error: unknown,
  delivery: Delivery<unknown>,
  run: number,
  random: number,
): Decision {
  for (let index = (policies?.length ?? 0) - 1; index >= 0; index -= 1) {
    const decision = ask(policies?.[index] as Policy, error, delivery, run, random)
    if (decision) return decision
  }
  return { kind: 'requeue', delayMs: backoffMs({}, delivery.attempt, random) }
}

/** A policy that throws has no say: the message must end somewhere all the same. */
function ask(policy: Policy, ...question: Parameters<Policy>): Decision | undefined {
  try {
    return policy(...question)
  } catch (error) {
    process.emitWarning(error instanceof Error ? error : String(error), 'MillracePolicyWarning')
    return undefined
  }
}

/** A delay that a caller's function gave us. */
function usable(delayMs: number): number {
  return Number.isFinite(delayMs) && delayMs > 0 ? delayMs : 0
}

/** How a reason is stored: one line of text. */
export function describeReason(reason: unknown): string {
  if (reason instanceof Error) return `${reason.name}: ${reason.message}`
  if (typeof reason === 'string') return reason
  try {
    return JSON.stringify(reason) ?? String(reason)
  } catch {
    return String(reason)
  }
}
