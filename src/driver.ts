/**
 * The driver contract: the only thing that a backend writes.
 *
 * The engine calls these verbs; a driver answers each exactly once. What every verb promises:
 *
 * - **Replies.** A verb answers a {@link Reply}. A driver that has its answer at once may return
 *   `replied(value)`, which calls back synchronously; with it a whole pipeline runs in virtual time.
 * - **Repeats.** A changing verb carries a {@link RequestToken}. Asked again with the same `session` and `seq` it
 *   answers what it answered first and changes nothing more. That is how a lost reply is survived.
 * - **Errors.** `BackendUnavailableError` means "perhaps applied, ask again"; the engine does, with the same token.
 *   Any other rejection is final: the request was refused and nothing of it was applied.
 * - **Atomicity.** One `enqueue` stores all of its batch or nothing. One settle command is one atomic step, together
 *   with the messages it carries. Different commands of one `settle` call are independent of each other.
 * - **No abandoned answers.** A claim answers even when nobody wants it any more; the engine gives back what it grants.
 *
 * Instants are epoch milliseconds by the backend's clock, durations are milliseconds.
 */
import type { Observable, SchedulerLike } from 'rxjs'
import type { DriverFeatures } from './driver-features.js'
import { TokenExpiredError } from './errors.js'
import { Eventual } from './eventual.js'
import type { SharedSettings } from './shared-settings.js'

export * from './driver-features.js'
export * from './shared-settings.js'

/** The one answer of a verb. Any promise will do; see {@link replied} for an answer that is there already. */
export type Reply<T> = PromiseLike<T>

/** A backend: one store with many queues. Made by its factory without I/O; connects at first use. */
export interface Backend {
  /** The kind of store, for messages: `'memory'`, `'sqlite'`, … */
  readonly name: string
  readonly features: DriverFeatures
  /** The clock and timers of everything that runs on this backend. Default: real time, monotonic. */
  readonly scheduler?: SchedulerLike
  /** Gives the driver of one queue. No I/O. `owner.close` is called when the backend is closed as a whole. */
  open(queue: string, owner: BackendOwner): QueueDriver
  /** Closes every queue that is open here, then lets go of the store. Repeating it is harmless. */
  close(): PromiseLike<void>
}

/** Who opened a driver, as the backend sees it. */
export interface BackendOwner {
  close(): PromiseLike<unknown>
}

/** Names a request so that asking it again is safe. */
export interface RequestToken {
  /** One per open queue object; unique for ever. */
  readonly session: string
  /** Rises by one with each request of the session. */
  readonly seq: number
  /**
   * All answers below this are in: the store may forget them. The store keeps answers from here on for two leases
   * at least after the session was last heard of, and refuses a `seq` below a floor it was told with
   * `TokenExpiredError`.
   */
  readonly floor: number
}

/** A message to store. `bytes` are the encoded payload; the driver never looks inside. */
export interface NewMessage {
  readonly id: string
  readonly bytes: Uint8Array
  /** 0..65535, lower first. */
  readonly priority: number
  /** 0 is ready now. */
  readonly delayMs: number
  readonly key?: string
  readonly partition?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly ttlMs?: number
  /** What becomes of it when the ttl runs out before anybody took it. Default `'drop'`. */
  readonly whenExpired?: 'drop' | 'dead-letter'
}

/** `'duplicate'`: a message of that id is held in some state, or its outcome is retained; nothing was stored. */
export type EnqueueStatus = 'enqueued' | 'duplicate'

export interface ClaimRequest {
  readonly token: RequestToken
  /** Grant at most this many. */
  readonly max: number
  readonly leaseMs: number
  /** The claims are at most once: marked taken, and dropped (counted) instead of redelivered if they lapse. */
  readonly take: boolean
  /** A label for people. Never compared. */
  readonly consumer: string
  /** Another claim of this consumer was sent in the same turn, whose answer should not have to wait for this one's. */
  readonly apart?: boolean
  readonly group?: string
  readonly partition?: string
  /**
   * Aborts when nobody wants the answer any more. A hint: the answer must come all the same. A driver that has not
   * begun, and may have to wait for that, answers at once that the claim was `withdrawn`.
   */
  readonly signal?: AbortSignal
}

export interface ClaimReply {
  /** In queue order; fewer than `max` means that nothing else was ready. */
  readonly claims: readonly Claim[]
  /** Milliseconds until the next delayed message, lapse or expiry in this queue; absent when there is none. */
  readonly nextDueMs?: number
  readonly paused: boolean
  /** Nothing was looked at, since the signal had aborted before: it is not known whether anything is ready. */
  readonly withdrawn?: boolean
}

/** One granted claim. */
export interface Claim {
  readonly id: string
  /** Unique to this claim; every settlement, renewal and extension names it. */
  readonly token: string
  /** Rises with each claim of the queue. */
  readonly fence: number
  readonly bytes: Uint8Array
  /** From 1. */
  readonly attempt: number
  /** From 1; counts this claim. */
  readonly deliveryCount: number
  readonly priority: number
  readonly key?: string
  readonly partition?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly enqueuedAt: number
  /** The lease as granted, which may be longer than asked. */
  readonly leaseMs: number
  readonly leaseExpiresAt: number
  /** `queue.cancel(id)` was called while it was claimed before. */
  readonly cancelRequested?: boolean
}

/** A message for another queue of the same backend, stored in the same atomic step as the settlement. */
export interface CarriedMessage {
  readonly queue: string
  readonly message: NewMessage
}

/**
 * How a claim ends.
 *
 * Each compares the claim's token and changes nothing when that is not the live one. The same command for the same
 * claim, asked again under the same request token, answers as it did first.
 */
export type SettleCommand = { readonly id: string; readonly token: string } & (
  | {
      /** Done. `result` is kept with the outcome. With `carry` it is a forward, counted as such. */
      readonly kind: 'ack'
      readonly result?: Uint8Array
      readonly carry?: readonly CarriedMessage[]
    }
  | {
      /**
       * Back to the queue. With `delayMs` 0 it returns to its old place; with more it arrives anew when that is over.
       * `countAttempt` raises `attempt`; where the attempt that just ended was the `maxDeliveries`-th, it becomes a
       * dead letter in the same step.
       */
      readonly kind: 'requeue'
      readonly delayMs: number
      readonly countAttempt: boolean
      readonly reason?: string
    }
  | {
      /** Back to its old place, uncounted. `delivered: false` (nobody saw it) takes back the `deliveryCount` too. */
      readonly kind: 'release'
      readonly delivered: boolean
    }
  | {
      readonly kind: 'dead-letter'
      readonly reason: string
      /** It goes to these queues instead of this queue's own dead letters. */
      readonly carry?: readonly CarriedMessage[]
    }
)

/**
 * What became of the message. `'stale'`: the claim was not live, nothing changed. `'refused'`: the carried message
 * could not be stored; the claim is still live. A message whose cancel was requested ends `'cancelled'` by any
 * command but `ack`.
 */
export type SettleState = 'acked' | 'forwarded' | 'ready' | 'delayed' | 'dead' | 'cancelled' | 'stale' | 'refused'

export interface SettleResult {
  readonly state: SettleState
  /** Why it was refused. */
  readonly error?: Error
}

export interface Renewal {
  readonly id: string
  readonly token: string
  /** The new lease, from now. */
  readonly leaseMs: number
  /** Replaces the progress shown by `peek`. */
  readonly progress?: Uint8Array
}

export interface RenewResult {
  /** `'cancelled'`: renewed, and the message's cancel was requested. `'stale'`: not renewed. */
  readonly state: 'renewed' | 'cancelled' | 'stale'
  readonly leaseMs: number
  readonly leaseExpiresAt: number
}

/** What became of the lease that keeps claims alive. */
export type LeaseState = 'suspended' | 'expired' | 'restored' | 'failed'

/** Something changed; read again. Hints may be lost, repeated or late, and never carry messages. */
export type Hint =
  /** A message became ready, the next due instant came nearer, or the queue was resumed. */
  | { readonly kind: 'ready' }
  /** Nothing became ready, but something will be due in so many milliseconds. */
  | { readonly kind: 'due'; readonly inMs: number }
  /** A cancel of a claimed message was requested. */
  | { readonly kind: 'cancel'; readonly id: string }
  /** An outcome that was asked for with `watch` is there. */
  | { readonly kind: 'outcome'; readonly id: string }
  /**
   * What keeps all claims of this driver alive, where that is one thing: `suspended` is not confirmed in time, `expired` is
   * gone with the claims, `restored` is a new one for the next claims, `failed` is that there cannot be one now.
   */
  | { readonly kind: 'lease'; readonly state: LeaseState }
  /** The store cannot be reached. The stream of hints goes on. */
  | { readonly kind: 'down'; readonly error: Error }
  /** Hints come from now on, or come again: what happened before was not hinted at. */
  | { readonly kind: 'up' }

export interface SweepReply {
  /** Messages that were moved: promoted, lapsed, expired. Equal to the limit means that there may be more. */
  readonly moved: number
  readonly nextDueMs?: number
}

export interface QueueStats {
  readonly ready: number
  readonly delayed: number
  readonly claimed: number
  readonly dead: number
  /** How long the message that has been ready longest has waited; 0 when none is. */
  readonly oldestReadyAgeMs: number
  readonly paused: boolean
  /** Since the queue was made; equal to all that follow plus ready, delayed, claimed and dead. */
  readonly enqueuedTotal: number
  readonly ackedTotal: number
  readonly forwardedTotal: number
  readonly purgedTotal: number
  readonly expiredTotal: number
  readonly cancelledTotal: number
  readonly droppedTotal: number
}

/** One page of a listing. `after` is the cursor of the last page; opaque. */
export interface Page {
  readonly after?: string
  readonly limit: number
}

export interface Paged<T> {
  readonly items: readonly T[]
  /** Absent on the last page. */
  readonly next?: string
}

/** A message as listings show it. */
export interface StoredMessage {
  readonly id: string
  readonly state: 'ready' | 'delayed' | 'claimed'
  readonly bytes: Uint8Array
  readonly attempt: number
  readonly deliveryCount: number
  readonly priority: number
  readonly key?: string
  readonly partition?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly enqueuedAt: number
  /** When a delayed message becomes ready. */
  readonly dueAt?: number
  readonly leaseExpiresAt?: number
  readonly consumer?: string
  readonly progress?: Uint8Array
}

/** A dead letter as it is stored. */
export interface StoredDeadLetter {
  readonly id: string
  readonly bytes: Uint8Array
  readonly reason: string
  /** Attempts that were made. */
  readonly attempts: number
  readonly deliveryCount: number
  readonly priority: number
  readonly key?: string
  readonly partition?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly enqueuedAt: number
  readonly deadAt: number
  /** The reasons of the failures, oldest first; the last {@link ERRORS_KEPT} are kept. */
  readonly errors: readonly string[]
}

export type CancelReply = 'cancelled' | 'cancelling' | 'finished' | 'unknown'

/** The end of a message, or that it has none yet (`'pending'`), or that nothing is known of it. */
export type StoredOutcome =
  | { readonly state: 'done'; readonly result?: Uint8Array }
  | { readonly state: 'dead'; readonly reason: string }
  | { readonly state: 'cancelled' }
  | { readonly state: 'expired' }
  | { readonly state: 'pending' }
  | { readonly state: 'unknown' }

/** States that `purge` may name. */
export type PurgeState = 'ready' | 'delayed' | 'claimed' | 'dead'

/**
 * Verbs that run at once inside a transaction that the caller has begun on a connection of its own, and are committed
 * or rolled back with it. Each throws instead of rejecting, and has changed nothing then.
 */
export interface OwnTransaction {
  settings(connection: object, proposed: Partial<SharedSettings>): SharedSettings
  enqueue(connection: object, batch: readonly NewMessage[]): readonly EnqueueStatus[]
  settle(connection: object, command: SettleCommand): SettleResult
}

/** One queue of a backend. See the head of this file for what every verb promises. */
export interface QueueDriver {
  /**
   * Stores each shared setting that is named here and that nobody has named before, and answers what is stored, with
   * the defaults for what nobody has named yet.
   */
  settings(proposed: Partial<SharedSettings>): Reply<SharedSettings>
  /** Replaces the shared settings that are named, for all processes, and answers what is stored. */
  configure(changes: Partial<SharedSettings>): Reply<SharedSettings>

  /** Stores the batch in its order, all or nothing. A status for each, in order. An id twice in one batch is a duplicate. */
  enqueue(batch: readonly NewMessage[], token: RequestToken): Reply<readonly EnqueueStatus[]>
  /** Grants what is ready, at once. Promotes what is due and returns what has lapsed first, in bounded steps. */
  claim(request: ClaimRequest): Reply<ClaimReply>
  settle(commands: readonly SettleCommand[], token: RequestToken): Reply<readonly SettleResult[]>
  /** Extends leases from now. Idempotent by nature. Never shortens the life of a claim that is not live any more. */
  renew(renewals: readonly Renewal[]): Reply<readonly RenewResult[]>
  /** Promotes what is due, returns what has lapsed, expires what is past its ttl: at most `limit` messages. */
  sweep(limit: number): Reply<SweepReply>

  /** Hints for this queue, shared and cold: the first subscriber starts them, the last to leave ends them. */
  arrivals(): Observable<Hint>

  stats(): Reply<QueueStats>
  list(state: StoredMessage['state'], page: Page): Reply<Paged<StoredMessage>>
  deadLetters(page: Page): Reply<Paged<StoredDeadLetter>>
  /** Back to ready with attempt 1 and a fresh arrival. For each id whether it was dead. */
  requeueDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]>
  /** Gone for good, and the ids are free again. For each id whether it was dead. */
  purgeDead(ids: readonly string[], token: RequestToken): Reply<readonly boolean[]>
  /** Drops what is in these states, at most `limit` messages, and answers how many; the caller asks until it is 0. */
  purge(states: readonly PurgeState[], limit: number, token: RequestToken): Reply<number>
  pause(): Reply<void>
  resume(): Reply<void>
  cancel(id: string, token: RequestToken): Reply<CancelReply>
  /** Never waits. With `watch`, a hint `outcome` follows when it changes. */
  outcome(id: string, watch: boolean): Reply<StoredOutcome>
  /** Present where `features.ownTransactions` says so. */
  readonly ownTransaction?: OwnTransaction
  /** Lets go of this queue. What is claimed stays claimed until it lapses. Repeating it is harmless. */
  close(): Reply<void>
}

/** How many failure reasons a message keeps. */
export const ERRORS_KEPT = 10

/** A message handed over this many times `maxDeliveries`, however it came back, is dead-lettered. */
export const DELIVERIES_PER_ATTEMPT = 3

/** A reply that is there already: its callbacks run inside `then`. */
export function replied<T>(value: T): Reply<T> {
  return Eventual.resolved(value)
}

/** What answers a repeat that comes too late. */
export function tokenExpired({ session, seq }: RequestToken): TokenExpiredError {
  return new TokenExpiredError(`request ${seq} of session ${session} is older than the answers that are kept`)
}

/** A refusal that is there already. */
export function refused<T = never>(error: Error): Reply<T> {
  return Eventual.rejected(error)
}
