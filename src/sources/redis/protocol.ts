/**
 * How requests become arguments of the script, and its replies answers of the driver. Strings come as buffers.
 */
import type {
  Claim,
  ClaimReply,
  NewMessage,
  QueueStats,
  Renewal,
  SettleCommand,
  SettleResult,
  SharedSettings,
  StoredDeadLetter,
  StoredMessage,
  StoredOutcome,
} from '../../driver.js'
import { DEFAULT_SETTINGS } from '../../driver.js'
import type { Argument } from './client.js'

/** Text comes as a buffer. */
export const text = (value: unknown): string => String(value)
export const whole = (value: unknown): number => Number(value)

export function batchArguments(batch: readonly NewMessage[]): Argument[] {
  const args: Argument[] = [batch.length]
  for (const { id, priority, delayMs, ttlMs, whenExpired, key, headers, bytes } of batch) {
    const shownHeaders = headers === undefined ? '' : JSON.stringify(headers)
    args.push(id, priority, Math.ceil(delayMs), ttlMs === undefined ? '' : Math.ceil(ttlMs))
    args.push(whenExpired === 'dead-letter' ? 1 : 0, key ?? '', shownHeaders, sizeOf(bytes, headers), asBuffer(bytes))
  }
  return args
}

export function commandArguments(commands: readonly SettleCommand[], prefixOf: (queue: string) => string): Argument[] {
  const args: Argument[] = [commands.length]
  for (const command of commands) {
    const { kind, id, token } = command
    args.push(kind, id, token)
    args.push(kind === 'release' && command.delivered ? 1 : 0, kind === 'requeue' && command.countAttempt ? 1 : 0)
    args.push(kind === 'requeue' ? Math.ceil(command.delayMs) : 0)
    args.push(...optional('reason' in command ? command.reason : undefined))
    args.push(...optional('result' in command ? command.result : undefined))
    args.push(...parcelArguments(command, prefixOf))
  }
  return args
}

function parcelArguments(command: SettleCommand, prefixOf: (queue: string) => string): Argument[] {
  const carried = 'carry' in command ? (command.carry ?? []) : []
  const parcels = new Map<string, NewMessage[]>()
  for (const { queue, message } of carried) {
    const batch = parcels.get(queue)
    if (batch) batch.push(message)
    else parcels.set(queue, [message])
  }
  const args: Argument[] = [parcels.size]
  for (const [queue, batch] of parcels) args.push(prefixOf(queue), ...batchArguments(batch))
  return args
}

function optional(value: string | Uint8Array | undefined): Argument[] {
  if (value === undefined) return [0]
  return [1, typeof value === 'string' ? value : asBuffer(value)]
}

export function renewalArguments(renewals: readonly Renewal[]): Argument[] {
  const args: Argument[] = [renewals.length]
  for (const { id, token, leaseMs, progress } of renewals)
    args.push(id, token, leaseFor(leaseMs), ...optional(progress))
  return args
}

export function leaseFor(leaseMs: number): number {
  return Math.max(1, Math.ceil(leaseMs))
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

export function claimReply([claims, paused, nextDueMs]: [unknown[][], number, number]): ClaimReply {
  const reply: Mutable<ClaimReply> = { claims: claims.map(asClaim), paused: paused === 1 }
  if (nextDueMs >= 0) reply.nextDueMs = nextDueMs
  return reply
}

function asClaim(row: unknown[]): Claim {
  const [id, fence, bytes, attempt, deliveryCount, priority, key, headers, enqueuedAt, leaseMs, leaseExpiresAt] = row
  return {
    id: text(id),
    token: text(fence),
    fence: whole(fence),
    bytes: bytes as Uint8Array,
    attempt: whole(attempt),
    deliveryCount: whole(deliveryCount),
    priority: whole(priority),
    ...keyAndHeaders(key, headers),
    enqueuedAt: whole(enqueuedAt),
    leaseMs: whole(leaseMs),
    leaseExpiresAt: whole(leaseExpiresAt),
  }
}

function keyAndHeaders(key: unknown, headers: unknown): { key?: string; headers?: Record<string, string> } {
  const [keyText, headersText] = [text(key), text(headers)]
  return {
    ...(keyText !== '' && { key: keyText }),
    ...(headersText !== '' && { headers: JSON.parse(headersText) as Record<string, string> }),
  }
}

/** A result that was refused carries its error. */
export function settleResult(reply: unknown, refusalIn: (reply: unknown) => Error | undefined): SettleResult {
  const error = refusalIn(reply)
  return error ? { state: 'refused', error } : { state: text(reply) as SettleResult['state'] }
}

export function settingsOf(reply: unknown): SharedSettings {
  return { ...DEFAULT_SETTINGS, ...(JSON.parse(text(reply)) as Partial<SharedSettings>) }
}

export function statsOf(row: unknown[]): QueueStats {
  const [ready, delayed, claimed, dead, age, paused, enqueued, acked, forwarded, purged, expired, cancelled, dropped] =
    row.map(whole) as [
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
    ]
  return {
    ready,
    delayed,
    claimed,
    dead,
    oldestReadyAgeMs: age,
    paused: paused === 1,
    enqueuedTotal: enqueued,
    ackedTotal: acked,
    forwardedTotal: forwarded,
    purgedTotal: purged,
    expiredTotal: expired,
    cancelledTotal: cancelled,
    droppedTotal: dropped,
  }
}

export function storedMessage(row: unknown[], state: StoredMessage['state']): StoredMessage {
  const [id, bytes, attempt, deliveryCount, priority, key, headers, enqueuedAt, at, consumer, progress] = row
  return {
    id: text(id),
    state,
    bytes: bytes as Uint8Array,
    attempt: whole(attempt),
    deliveryCount: whole(deliveryCount),
    priority: whole(priority),
    ...keyAndHeaders(key, headers),
    enqueuedAt: whole(enqueuedAt),
    ...(state === 'delayed' && { dueAt: whole(at) }),
    ...(state === 'claimed' && { leaseExpiresAt: whole(at), consumer: text(consumer) }),
    ...(state === 'claimed' && (progress as Uint8Array).byteLength > 0 && { progress: progress as Uint8Array }),
  }
}

export function storedDeadLetter(row: unknown[]): StoredDeadLetter {
  const [id, bytes, , deliveryCount, priority, key, headers, enqueuedAt, , , , reason, attempts, deadAt, errors] = row
  return {
    id: text(id),
    bytes: bytes as Uint8Array,
    reason: text(reason),
    attempts: whole(attempts),
    deliveryCount: whole(deliveryCount),
    priority: whole(priority),
    ...keyAndHeaders(key, headers),
    enqueuedAt: whole(enqueuedAt),
    deadAt: whole(deadAt),
    errors: JSON.parse(text(errors)) as string[],
  }
}

export function storedOutcome([state, detail]: unknown[]): StoredOutcome {
  const kind = text(state) as StoredOutcome['state']
  if (kind === 'done') return detail === undefined ? { state: 'done' } : { state: 'done', result: detail as Uint8Array }
  return kind === 'dead' ? { state: 'dead', reason: text(detail) } : { state: kind }
}

function sizeOf(bytes: Uint8Array, headers: NewMessage['headers']): number {
  const entries = Object.entries(headers ?? {})
  return entries.reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    bytes.byteLength,
  )
}

/** The client takes only buffers as they are; any other array it would write out in digits. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
