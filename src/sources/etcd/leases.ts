/**
 * Leases of one opened queue: granted when first needed, kept alive in the background, and never revived. After one is
 * gone the next claims are kept by another.
 *
 * Whether a lease is live is judged by our own monotonic clock, from when the last renewal that was confirmed was sent.
 */
import type { LeaseState } from '../../driver.js'
import { BackendUnavailableError } from '../../errors.js'
import type { EtcdClient, KeepAlive } from './client.js'
import { isLeaseGone } from './errors.js'
import type { Keys } from './keys.js'
import { encode } from './record.js'
import { put } from './txn.js'

const DEADLINE_MS = 2_000
const MAX_GRANTS = 5
/** A lease that keeps no claim alive for so long is let go. */
const IDLE_MS = 60_000

/** A lease, and the marker by whose deletion others see that it is gone. */
export class Holder {
  /** By our own clock it is gone then. */
  until: number
  isGone = false
  /** When it last kept a claim alive. */
  usedAt: number
  timer: NodeJS.Timeout | undefined
  /** Renewals that were sent and not confirmed: when, and who waits. */
  readonly pending: { readonly sentAt: number; readonly done: (alive: boolean) => void }[] = []

  constructor(
    readonly id: string,
    readonly ttlMs: number,
    readonly ttlS: number,
    grantedAt: number,
  ) {
    this.until = grantedAt + ttlMs
    this.usedAt = grantedAt
  }

  get isLive(): boolean {
    return !this.isGone && performance.now() < this.until
  }
}

export class Leases {
  readonly #client: () => EtcdClient
  readonly #keys: Keys
  readonly #told: (news: LeaseState) => void
  readonly #isUsed: (holder: Holder) => boolean
  readonly #holders = new Map<string, Holder>()
  readonly #byTtl = new Map<number, Promise<Holder>>()
  #stream: Promise<KeepAlive> | undefined
  #isClosed = false
  #lostOne = false
  #failing = false

  constructor(
    client: () => EtcdClient,
    keys: Keys,
    told: (news: LeaseState) => void,
    isUsed: (holder: Holder) => boolean,
  ) {
    this.#client = client
    this.#keys = keys
    this.#told = told
    this.#isUsed = isUsed
  }

  find(id: string): Holder | undefined {
    return this.#holders.get(id)
  }

  /** A live lease of so many seconds, granted now if there is none. */
  async need(ttlS: number): Promise<Holder> {
    const held = await this.#byTtl.get(ttlS)?.catch(() => undefined)
    if (held?.isLive) {
      held.usedAt = performance.now()
      return held
    }
    if (held) this.gone(held)
    // Another may have asked for it meanwhile.
    const known = this.#byTtl.get(ttlS)
    if (known !== undefined) return known
    const granted = this.#grant(ttlS)
    this.#byTtl.set(ttlS, granted)
    granted.catch(() => {
      if (this.#byTtl.get(ttlS) === granted) this.#byTtl.delete(ttlS)
    })
    return granted
  }

  /** Renews now; whether it was confirmed. */
  refresh(holder: Holder): Promise<boolean> {
    if (!holder.isLive) {
      this.gone(holder)
      return Promise.resolve(false)
    }
    return new Promise((done) => {
      holder.pending.push({ sentAt: performance.now(), done })
      void this.#send(holder)
    })
  }

  /** It is not live any more, whatever tells us. */
  gone(holder: Holder): void {
    if (holder.isGone) return
    holder.isGone = true
    this.#lostOne = true
    this.#forget(holder)
    this.#told('expired')
  }

  /** Lets go of all leases, so that what they kept alive is free at once. */
  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.allSettled([...this.#byTtl.values()])
    const holders = [...this.#holders.values()]
    for (const holder of holders) {
      holder.isGone = true
      this.#forget(holder)
    }
    void this.#stream?.then(
      (stream) => stream.end(),
      () => {},
    )
    this.#stream = undefined
    await Promise.allSettled(holders.map(({ id }) => this.#client().revoke(id, DEADLINE_MS)))
  }

  async #grant(ttlS: number): Promise<Holder> {
    if (this.#isClosed) throw new BackendUnavailableError('the queue is closing')
    try {
      const holder = await this.#grantMarked(ttlS)
      this.#holders.set(holder.id, holder)
      this.#keep(holder)
      this.#granted()
      return holder
    } catch (error) {
      if (this.#lostOne && !this.#failing) this.#told('failed')
      this.#failing = true
      throw error
    }
  }

  async #grantMarked(ttlS: number): Promise<Holder> {
    for (let attempt = 1; ; attempt += 1) {
      const grantedAt = performance.now()
      const { id, ttlMs } = await this.#client().grant(ttlS, DEADLINE_MS)
      try {
        await this.#mark(id)
        return new Holder(id, ttlMs, ttlS, grantedAt)
      } catch (error) {
        // Somebody was very fast to revoke it.
        if (!isLeaseGone(error)) throw error
        if (attempt === MAX_GRANTS)
          throw new BackendUnavailableError('leases are revoked as they are granted', { cause: error })
      }
    }
  }

  async #mark(id: string): Promise<void> {
    const marker = put(`${this.#keys.lives}${id}`, encode(1), id)
    try {
      await this.#client().txn({ compare: [], success: [marker], failure: [] }, DEADLINE_MS)
    } catch (error) {
      if (!isLeaseGone(error))
        this.#client()
          .revoke(id, DEADLINE_MS)
          .catch(() => {})
      throw error
    }
  }

  #granted(): void {
    if (this.#lostOne) this.#told('restored')
    this.#lostOne = false
    this.#failing = false
  }

  #keep(holder: Holder): void {
    holder.timer = setInterval(() => {
      if (!holder.isLive) return this.gone(holder)
      if (this.#isIdle(holder)) return this.#letGo(holder)
      void this.refresh(holder).then((confirmed) => {
        if (!confirmed && holder.isLive) this.#told('suspended')
      })
    }, holder.ttlMs / 3)
    holder.timer.unref()
  }

  /** Idle queues, however many, cost nothing. */
  #isIdle(holder: Holder): boolean {
    if (this.#isUsed(holder)) holder.usedAt = performance.now()
    return performance.now() - holder.usedAt > IDLE_MS
  }

  #letGo(holder: Holder): void {
    holder.isGone = true
    this.#forget(holder)
    this.#client()
      .revoke(holder.id, DEADLINE_MS)
      .catch(() => {})
  }

  async #send(holder: Holder): Promise<void> {
    try {
      const stream = await this.#opened()
      stream.send(holder.id)
    } catch {
      this.#unconfirmed(holder)
    }
    const { sentAt } = holder.pending.at(-1) ?? {}
    if (sentAt === undefined) return
    setTimeout(
      () => this.#late(holder, sentAt),
      Math.min(this.#client().members > 1 ? 600 : DEADLINE_MS, holder.ttlMs / 3),
    ).unref()
  }

  #late(holder: Holder, sentAt: number): void {
    if (!holder.pending.some((one) => one.sentAt <= sentAt)) return
    this.#unconfirmed(holder)
    this.#reopen()
  }

  #unconfirmed(holder: Holder): void {
    for (const { done } of holder.pending.splice(0)) done(false)
  }

  #opened(): Promise<KeepAlive> {
    this.#stream ??= this.#client().keepAlive({
      alive: (id, ttlMs) => this.#confirmed(id, ttlMs),
      broken: () => this.#reopen(),
    })
    this.#stream.catch(() => this.#reopen())
    return this.#stream
  }

  #reopen(): void {
    const stream = this.#stream
    this.#stream = undefined
    void stream?.then(
      (open) => open.end(),
      () => {},
    )
    for (const holder of this.#holders.values()) this.#unconfirmed(holder)
  }

  #confirmed(id: string, ttlMs: number): void {
    const holder = this.#holders.get(id)
    if (!holder) return
    if (ttlMs <= 0) {
      this.gone(holder)
      return
    }
    // Answers come in the order of the questions, all of one lease: the first that waits is the one that is answered.
    const confirmed = holder.pending.shift()
    if (!confirmed) return
    holder.until = Math.max(holder.until, confirmed.sentAt + ttlMs)
    confirmed.done(true)
  }

  #forget(holder: Holder): void {
    clearInterval(holder.timer)
    this.#holders.delete(holder.id)
    this.#byTtl.delete(holder.ttlS)
    this.#unconfirmed(holder)
  }
}
