import type { Ageing, NewMessage, QueueStats, StoredOutcome } from '../../../src/driver.js'
import { DELIVERIES_PER_ATTEMPT } from '../../../src/driver.js'

export interface Rules {
  readonly maxDeliveries: number
  readonly ageing: Ageing | null
  readonly maxLength: number | null
  readonly maxBytes: number | null
  readonly whenFull: 'reject' | 'dropOldest'
  readonly outcomesMs: number
}

export interface Held {
  readonly source: NewMessage
  state: 'ready' | 'delayed' | 'claimed' | 'dead' | 'ended'
  at: number
  seq: number
  expiresAt: number
  attempt: number
  deliveries: number
  fence: number
  leaseEnd: number
  take: boolean
  cancel: boolean
  outcome: StoredOutcome
  endedAt: number
}

const FRESH = { attempt: 1, deliveries: 0, fence: 0, leaseEnd: 0, take: false, cancel: false, endedAt: 0 }

/** The memory queue as one would write it without a thought for speed: a list, searched and sorted each time. */
export class NaiveQueue {
  held: Held[] = []
  paused = false
  enqueued = 0
  acked = 0
  purged = 0
  expired = 0
  cancelled = 0
  dropped = 0
  #seq = 0
  #fence = 0

  constructor(
    readonly rules: Rules,
    public now: number,
  ) {}

  in(...states: Held['state'][]): Held[] {
    return this.held.filter((one) => states.includes(one.state))
  }

  find(id: string): Held | undefined {
    return this.held.find((one) => one.source.id === id)
  }

  /** Does what time has done. */
  catchUp(): void {
    this.held = this.held.filter((one) => one.state !== 'ended' || one.endedAt + this.rules.outcomesMs > this.now)
    for (const one of this.in('claimed')) if (one.leaseEnd <= this.now) this.#lapse(one)
    for (const one of this.in('ready', 'delayed')) if (one.expiresAt <= this.now) this.#expire(one)
    for (const one of this.in('delayed')) if (one.at <= this.now) one.state = 'ready'
  }

  /** The ready messages in the order in which they must be claimed. */
  order(): Held[] {
    const { ageing } = this.rules
    const cap = ageing === null ? -1 : ageing.cap
    const key = ({ source, at, seq }: Held) =>
      ageing !== null && source.priority <= cap
        ? [0, at + source.priority * ageing.stepMs, seq]
        : [1 + source.priority, at, seq]
    return this.in('ready').sort((a, b) => compare(key(a), key(b)))
  }

  enqueue(batch: readonly NewMessage[]): string[] | 'full' {
    const seen = new Set<string>()
    const isNew = batch.map(({ id }) => this.find(id) === undefined && !seen.has(id) && seen.add(id) !== undefined)
    const added = batch.filter((_, index) => isNew[index])
    if (!this.makeRoom(added.length, bytesOf(added))) return 'full'
    for (const source of added) this.#store(source)
    return isNew.map((yes) => (yes ? 'enqueued' : 'duplicate'))
  }

  claim(max: number, leaseMs: number, take: boolean): Held[] {
    if (this.paused) return []
    const claimed = this.order().slice(0, max)
    for (const one of claimed) {
      this.#fence += 1
      Object.assign(one, { state: 'claimed', fence: this.#fence, leaseEnd: this.now + leaseMs, take })
      one.deliveries += 1
    }
    return claimed
  }

  ack(one: Held): string {
    this.acked += 1
    this.#end(one, { state: 'done' })
    return 'acked'
  }

  requeue(one: Held, delayMs: number, counted: boolean): string {
    if (one.cancel) return this.cancel(one)
    if ((counted && one.attempt >= this.rules.maxDeliveries) || this.#tooOften(one)) return this.bury(one)
    if (counted) one.attempt += 1
    one.state = delayMs > 0 ? 'delayed' : 'ready'
    if (delayMs > 0) this.#place(one, this.now + delayMs)
    return one.state
  }

  release(one: Held, delivered: boolean): string {
    if (one.cancel) return this.cancel(one)
    if (!delivered) one.deliveries -= 1
    else if (this.#tooOften(one)) return this.bury(one)
    one.state = 'ready'
    return 'ready'
  }

  bury(one: Held): string {
    if (one.cancel) return this.cancel(one)
    one.state = 'dead'
    return 'dead'
  }

  cancel(one: Held): string {
    this.cancelled += 1
    this.#end(one, { state: 'cancelled' })
    return 'cancelled'
  }

  revive(one: Held): void {
    const ttl = one.source.ttlMs
    Object.assign(one, FRESH, { state: 'ready', expiresAt: ttl === undefined ? Infinity : this.now + ttl })
    this.#place(one, this.now)
  }

  purge(one: Held): void {
    this.purged += 1
    this.#remove(one)
  }

  makeRoom(length: number, bytes: number): boolean {
    if (length === 0) return true
    const oldest = this.in('ready').sort((a, b) => compare([a.at, a.seq], [b.at, b.seq]))
    const droppable = this.rules.whenFull === 'dropOldest' ? oldest : []
    const drop: Held[] = []
    while (this.#exceeded(length, bytes, drop)) {
      const next = droppable[drop.length]
      if (next === undefined) return false
      drop.push(next)
    }
    this.dropped += drop.length
    for (const one of drop) this.#remove(one)
    return true
  }

  stats(): QueueStats {
    const oldest = Math.min(this.now, ...this.in('ready').map((one) => one.at))
    return {
      ready: this.in('ready').length,
      delayed: this.in('delayed').length,
      claimed: this.in('claimed').length,
      dead: this.in('dead').length,
      oldestReadyAgeMs: this.now - oldest,
      paused: this.paused,
      enqueuedTotal: this.enqueued,
      ackedTotal: this.acked,
      forwardedTotal: 0,
      purgedTotal: this.purged,
      expiredTotal: this.expired,
      cancelledTotal: this.cancelled,
      droppedTotal: this.dropped,
    }
  }

  nextDueMs(): number | undefined {
    const instants = [
      ...this.in('claimed').map((one) => one.leaseEnd),
      ...this.in('delayed').map((one) => Math.min(one.at, one.expiresAt)),
      ...this.in('ready').map((one) => one.expiresAt),
    ].filter(Number.isFinite)
    return instants.length === 0 ? undefined : Math.min(...instants) - this.now
  }

  outcomeState(id: string): StoredOutcome['state'] {
    const one = this.find(id)
    if (one?.state === 'dead') return 'dead'
    return one === undefined ? 'unknown' : one.outcome.state
  }

  #store(source: NewMessage): void {
    this.enqueued += 1
    const expiresAt = source.ttlMs === undefined ? Infinity : this.now + source.ttlMs
    const state = source.delayMs > 0 ? 'delayed' : 'ready'
    const one: Held = { ...FRESH, source, state, at: 0, seq: 0, expiresAt, outcome: { state: 'pending' } }
    this.held.push(one)
    this.#place(one, this.now + Math.max(0, source.delayMs))
  }

  #place(one: Held, at: number): void {
    this.#seq += 1
    one.at = at
    one.seq = this.#seq
  }

  #lapse(one: Held): void {
    if (one.cancel) this.cancel(one)
    else if (one.take) {
      this.dropped += 1
      this.#remove(one)
    } else this.requeue(one, 0, true)
  }

  #expire(one: Held): void {
    if (one.source.whenExpired === 'dead-letter') {
      one.state = 'dead'
      return
    }
    this.expired += 1
    this.#end(one, { state: 'expired' })
  }

  #end(one: Held, outcome: StoredOutcome): void {
    Object.assign(one, { state: 'ended', outcome, endedAt: this.now })
  }

  #remove(one: Held): void {
    this.held = this.held.filter((other) => other !== one)
  }

  #tooOften(one: Held): boolean {
    return one.deliveries >= DELIVERIES_PER_ATTEMPT * this.rules.maxDeliveries
  }

  #exceeded(length: number, bytes: number, without: readonly Held[]): boolean {
    const charged = this.in('ready', 'delayed', 'claimed').filter((one) => !without.includes(one))
    const { maxLength, maxBytes } = this.rules
    if (maxLength !== null && charged.length + length > maxLength) return true
    return maxBytes !== null && bytesOf(charged.map((one) => one.source)) + bytes > maxBytes
  }
}

function bytesOf(messages: readonly NewMessage[]): number {
  return messages.reduce((total, { bytes }) => total + bytes.byteLength, 0)
}

function compare(a: readonly number[], b: readonly number[]): number {
  for (const [index, value] of a.entries()) {
    const other = b[index] ?? 0
    if (value !== other) return value - other
  }
  return 0
}
