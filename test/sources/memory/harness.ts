import { type SchedulerLike, VirtualTimeScheduler } from 'rxjs'
import type {
  Backend,
  Claim,
  ClaimRequest,
  Hint,
  NewMessage,
  QueueDriver,
  QueueStats,
  Reply,
  SettleCommand,
  SettleResult,
  SettleState,
} from '../../../src/driver.js'
import { memoryBackend } from '../../../src/sources/memory/index.js'

/** A clock that stands still until it is told to go on. */
export class HandClock {
  time = 1_000_000
  readonly scheduler: SchedulerLike

  constructor() {
    const timers = new VirtualTimeScheduler()
    this.scheduler = {
      now: () => this.time,
      schedule: (work, delay, state) => timers.schedule(work as never, delay, state as never),
    }
  }
}

/** The value of a reply that must be there already. */
export function now<T>(reply: Reply<T>): T {
  let outcome: { value: T } | { error: unknown } | undefined
  reply.then(
    (value) => {
      outcome = { value }
    },
    (error) => {
      outcome = { error }
    },
  )
  if (outcome === undefined) throw new Error('the reply is not there yet')
  if ('error' in outcome) throw outcome.error
  return outcome.value
}

let sessions = 0

/** A driver with the tokens and defaults filled in. */
export class Rig {
  readonly clock: HandClock
  readonly backend: Backend
  readonly driver: QueueDriver
  readonly session = `session-${++sessions}`
  seq = 0

  constructor(options: { queue?: string; beside?: Rig } = {}) {
    this.clock = options.beside?.clock ?? new HandClock()
    this.backend = options.beside?.backend ?? memoryBackend({ scheduler: this.clock.scheduler })
    this.driver = this.backend.open(options.queue ?? 'q', { close: () => this.driver.close() })
  }

  token() {
    this.seq += 1
    return { session: this.session, seq: this.seq, floor: this.seq }
  }

  put(...messages: (string | Partial<NewMessage>)[]) {
    return now(this.driver.enqueue(messages.map(message), this.token()))
  }

  claim(max = 1, request: Partial<ClaimRequest> = {}): readonly Claim[] {
    return this.claimReply(max, request).claims
  }

  claimReply(max = 1, request: Partial<ClaimRequest> = {}) {
    return now(this.driver.claim({ token: this.token(), max, leaseMs: 1_000, take: false, consumer: 'c', ...request }))
  }

  /** Claims one message that must be there. */
  one(request: Partial<ClaimRequest> = {}): Claim {
    const [claim] = this.claim(1, request)
    if (claim === undefined) throw new Error('nothing was ready')
    return claim
  }

  settle(...commands: SettleCommand[]): readonly SettleResult[] {
    return now(this.driver.settle(commands, this.token()))
  }

  ack(claim: Claim, more: object = {}): SettleState | undefined {
    return this.settle({ kind: 'ack', id: claim.id, token: claim.token, ...more })[0]?.state
  }

  requeue(claim: Claim, more: { delayMs?: number; countAttempt?: boolean; reason?: string } = {}) {
    const command = { delayMs: 0, countAttempt: true, ...more }
    return this.settle({ kind: 'requeue', id: claim.id, token: claim.token, ...command })[0]?.state
  }

  release(claim: Claim, delivered = false): SettleState | undefined {
    return this.settle({ kind: 'release', id: claim.id, token: claim.token, delivered })[0]?.state
  }

  bury(claim: Claim, reason = 'bad', more: object = {}): SettleState | undefined {
    return this.settle({ kind: 'dead-letter', id: claim.id, token: claim.token, reason, ...more })[0]?.state
  }

  stats(): QueueStats {
    return now(this.driver.stats())
  }

  dead() {
    return now(this.driver.deadLetters({ limit: 100 })).items
  }

  outcome(id: string, watch = false) {
    return now(this.driver.outcome(id, watch))
  }

  configure(changes: Parameters<QueueDriver['configure']>[0]) {
    return now(this.driver.configure(changes))
  }

  /** Claims and acks all that is ready; the ids in order. */
  drain(): string[] {
    const ids: string[] = []
    for (let claims = this.claim(7); claims.length > 0; claims = this.claim(7)) {
      for (const claim of claims) {
        ids.push(claim.id)
        this.ack(claim)
      }
    }
    return ids
  }

  hints(): Hint[] {
    const seen: Hint[] = []
    this.driver.arrivals().subscribe((hint) => seen.push(hint))
    return seen
  }

  pass(ms: number): void {
    this.clock.time += ms
  }
}

/** A message with defaults; a string is its id. */
export function message(fields: string | Partial<NewMessage>): NewMessage {
  const given = typeof fields === 'string' ? { id: fields } : fields
  return { id: 'm', bytes: new Uint8Array([1, 2, 3]), priority: 0, delayMs: 0, ...given }
}

/** What enters must be somewhere. */
export function leak(stats: QueueStats): number {
  const held = stats.ready + stats.delayed + stats.claimed + stats.dead
  const gone = stats.ackedTotal + stats.forwardedTotal + stats.purgedTotal
  return stats.enqueuedTotal - held - gone - stats.expiredTotal - stats.cancelledTotal - stats.droppedTotal
}

export const LIMITS = { maxLength: null, maxBytes: null, maxPayloadBytes: 1_048_576, whenFull: 'reject' } as const
