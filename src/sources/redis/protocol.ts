/**
 * How requests become arguments of the script, and its replies answers of the driver. Strings come as buffers.
 */
import type {
  CarriedMessage,
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
import { byQueue, sizeOf } from '../local/admission.js'
import { settled } from '../local/settle-results.js'
import type { Argument } from './client.js'
import { dueAtIn, isCancelled, recordIn } from './record.js'

/** Text comes as a buffer. */
export const text = (value: unknown): string => String(value)
export const numberOf = (value: unknown): number => Number(value)

export function batchArguments(batch: readonly NewMessage[]): Argument[] {
  const args: Argument[] = [batch.length]
  for (const message of batch) {
    if (isPlain(message)) args.push(message.id, message.priority, asBuffer(message.bytes))
    else args.push(message.id, '', asBuffer(message.bytes), ...detailsOf(message))
  }
  return args
}

/** What nearly all are: ready at once and for good, with nothing to them but a priority. */
function isPlain({ delayMs, ttlMs, key, headers }: NewMessage): boolean {
  return delayMs === 0 && ttlMs === undefined && key === undefined && headers === undefined
}

function detailsOf(message: NewMessage): Argument[] {
  const { priority, delayMs, ttlMs, whenExpired, key, headers } = message
  const shownHeaders = headers === undefined ? '' : JSON.stringify(headers)
  const ttl = ttlMs === undefined ? '' : Math.ceil(ttlMs)
  return [
    priority,
    Math.ceil(delayMs),
    ttl,
    whenExpired === 'dead-letter' ? 1 : 0,
    key ?? '',
    shownHeaders,
    sizeOf(message),
  ]
}

/** The messages for other queues that go along. */
export function carriedBy(command: SettleCommand): readonly CarriedMessage[] {
  return 'carry' in command ? (command.carry ?? []) : []
}

export function commandArguments(commands: readonly SettleCommand[], prefixOf: (queue: string) => string): Argument[] {
  const args: Argument[] = [commands.length]
  for (const command of commands) {
    if (isPlainAck(command)) args.push('', command.id, command.token)
    else args.push(...fullCommand(command, prefixOf))
  }
  return args
}

/** What nearly all are: an ack with neither a result nor messages to carry. */
function isPlainAck(command: SettleCommand): boolean {
  return command.kind === 'ack' && command.result === undefined && command.carry === undefined
}

function fullCommand(command: SettleCommand, prefixOf: (queue: string) => string): Argument[] {
  const { kind, id, token } = command
  return [
    kind,
    id,
    token,
    kind === 'release' && command.delivered ? 1 : 0,
    kind === 'requeue' && command.countAttempt ? 1 : 0,
    kind === 'requeue' ? Math.ceil(command.delayMs) : 0,
    ...optional('reason' in command ? command.reason : undefined),
    ...optional('result' in command ? command.result : undefined),
    ...parcelArguments(command, prefixOf),
  ]
}

function parcelArguments(command: SettleCommand, prefixOf: (queue: string) => string): Argument[] {
  const parcels = byQueue(carriedBy(command))
  if (parcels.size === 0) return [0]
  const args: Argument[] = [1, parcels.size]
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
  return Math.min(Math.max(1, Math.ceil(leaseMs)), Number.MAX_SAFE_INTEGER)
}

export function claimReply([paused, nextDueMs, row]: [number, number, Buffer[]], leaseMs: number): ClaimReply {
  const reply = { claims: claimsIn(row, leaseMs), paused: paused === 1 }
  return nextDueMs < 0 ? reply : { ...reply, nextDueMs }
}

/** An id, a record and a payload for each. */
function claimsIn(row: readonly Buffer[], leaseMs: number): Claim[] {
  const claims: Claim[] = []
  for (let index = 0; index < row.length; index += 3) {
    const record = row[index + 1] as Buffer
    const { at, consumer: _, ...shown } = recordIn(record)
    const bytes = row[index + 2] as Buffer
    const claim = { id: text(row[index]), token: String(shown.fence), bytes, ...shown, leaseMs, leaseExpiresAt: at }
    claims.push(isCancelled(record) ? { ...claim, cancelRequested: true } : claim)
  }
  return claims
}

/** A result that was refused carries its error. */
export function settleResult(reply: unknown, refusalIn: (reply: unknown) => Error | undefined): SettleResult {
  const error = refusalIn(reply)
  return error ? { state: 'refused', error } : settled[text(reply) as keyof typeof settled]
}

/** Each setting as a text of its own. */
export function settingsArguments(settings: Partial<SharedSettings>): Argument[] {
  const entries = Object.entries(settings)
  return [entries.length, ...entries.flatMap(([name, value]) => [name, JSON.stringify(value)])]
}

export function settingsOf(row: readonly Buffer[]): SharedSettings {
  const settings: Record<string, unknown> = { ...DEFAULT_SETTINGS }
  for (let index = 0; index < row.length; index += 2) settings[text(row[index])] = JSON.parse(text(row[index + 1]))
  return settings as unknown as SharedSettings
}

/** In the order in which the script answers them. */
const STATS = [
  ...(['ready', 'delayed', 'claimed', 'dead', 'oldestReadyAgeMs'] as const),
  ...(['enqueuedTotal', 'ackedTotal', 'forwardedTotal', 'purgedTotal', 'expiredTotal'] as const),
  ...(['cancelledTotal', 'droppedTotal'] as const),
]

export function statsOf([paused, ...row]: readonly number[]): QueueStats {
  const numbers = Object.fromEntries(STATS.map((name, index) => [name, row[index] ?? 0])) as Record<
    (typeof STATS)[number],
    number
  >
  return { ...numbers, paused: paused === 1 }
}

/** What listings send of each message. */
export type ListedRow = [
  id: Buffer,
  record: Buffer,
  bytes: Buffer,
  progress: Buffer,
  reason: Buffer,
  attempts: number,
  errors: Buffer,
]

export function storedMessage([id, record, bytes, progress]: ListedRow, state: StoredMessage['state']): StoredMessage {
  const { fence: _, at, consumer, ...shown } = recordIn(record)
  const isClaimed = state === 'claimed'
  return {
    id: text(id),
    state,
    bytes,
    ...shown,
    ...(state === 'delayed' && { dueAt: dueAtIn(record) }),
    ...(isClaimed && { leaseExpiresAt: at, consumer }),
    ...(isClaimed && progress.byteLength > 0 && { progress }),
  }
}

export function storedDeadLetter([id, record, bytes, , reason, attempts, errors]: ListedRow): StoredDeadLetter {
  const { fence: _, at, consumer: __, attempt: ___, ...shown } = recordIn(record)
  return {
    id: text(id),
    bytes,
    ...shown,
    reason: text(reason),
    attempts,
    deadAt: at,
    errors: JSON.parse(text(errors)) as string[],
  }
}

export function storedOutcome([state, detail]: unknown[]): StoredOutcome {
  const kind = text(state) as StoredOutcome['state']
  if (kind === 'done') return detail === undefined ? { state: 'done' } : { state: 'done', result: detail as Uint8Array }
  return kind === 'dead' ? { state: 'dead', reason: text(detail) } : { state: kind }
}

/** The client takes only buffers as they are; any other array it would write out in digits. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
