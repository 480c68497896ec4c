import type { Claim, ClaimReply, ClaimRequest } from '../../driver.js'
import { expire, MAINTENANCE_STEP, maintain } from './maintenance.js'
import { type Message, NEVER } from './message.js'
import type { QueueStore } from './store.js'

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** Grants what is ready, after what has become due was moved. */
export function claim(store: QueueStore, request: ClaimRequest): ClaimReply {
  const claims: Claim[] = []
  const leaseMs = grantable(request.leaseMs)
  store.sessions.noteLease(leaseMs)
  if (!store.paused) grantUpTo(store, request, leaseMs, claims)
  return withNextDue<Mutable<ClaimReply>>({ claims, paused: store.paused }, store)
}

/** The lease that is granted for one that is asked for. */
export function grantable(leaseMs: number): number {
  return Math.max(1, Math.ceil(leaseMs))
}

/** Adds how long nothing will happen by itself, if something will. */
export function withNextDue<T extends { nextDueMs?: number }>(reply: T, store: QueueStore): T {
  const next = store.nextAt
  if (next !== NEVER) reply.nextDueMs = Math.max(0, next - store.clock.now)
  return reply
}

/** Goes on until enough is granted or nothing is ready; a step of maintenance may have left more that is due. */
function grantUpTo(store: QueueStore, request: ClaimRequest, leaseMs: number, claims: Claim[]): void {
  do {
    grantReady(store, request, leaseMs, claims)
  } while (claims.length < request.max && maintain(store, MAINTENANCE_STEP) > 0)
}

function grantReady(store: QueueStore, request: ClaimRequest, leaseMs: number, claims: Claim[]): void {
  const { now } = store.clock
  while (claims.length < request.max) {
    const message = store.ready.first
    if (message === undefined) return
    if (message.expiresAt !== NEVER && message.expiresAt <= now) {
      expire(store, message)
      continue
    }
    store.ready.shift()
    store.grant(message, leaseMs, request.consumer, request.take)
    claims.push(asClaim(store, message, leaseMs))
  }
}

function asClaim(store: QueueStore, message: Message, leaseMs: number): Claim {
  const claim: Mutable<Claim> = {
    id: message.id,
    token: message.token,
    fence: message.fence,
    bytes: message.bytes,
    attempt: message.attempt,
    deliveryCount: message.deliveryCount,
    priority: message.priority,
    enqueuedAt: store.clock.shown(message.enqueuedAt),
    leaseMs,
    leaseExpiresAt: store.clock.shown(message.instant),
  }
  if (message.key !== undefined) claim.key = message.key
  if (message.headers !== undefined) claim.headers = message.headers
  return claim
}
