/**
 * What a session keeps in the store: how often what happened to messages by its doing, and which claims it holds.
 *
 * Each session counts for itself, so that counting contends with nobody; a queue's numbers are the sum of all sessions.
 * Claims are written as pages that never change, one for each claiming transaction; which of them are settled is told
 * here, in some bytes, so that a settlement is this one write.
 */
import { decode, encode } from './record.js'

const NAMES = [
  'enqueued',
  'acked',
  'forwarded',
  'purged',
  'expired',
  'cancelled',
  'dropped',
  'ready',
  'delayed',
  'claimed',
  'dead',
  'bytes',
  'outcomes',
] as const

export type CountName = (typeof NAMES)[number]
export type Counts = Record<CountName, number>

/** A page of claims that are not all settled. */
export interface PageState {
  /** The lease that keeps its claims alive. */
  readonly lease: string
  readonly size: number
  /** One bit for each claim. */
  readonly settled: bigint
  readonly cancelled: bigint
}

type PageRow = [number, string, number, string, string]

interface Stored {
  /** The number of the session's last transaction. */
  readonly n: number
  readonly t: readonly number[]
  readonly c: readonly PageRow[]
}

export class SessionRecord {
  constructor(
    readonly turn: number,
    readonly counts: Counts,
    readonly pages: Map<number, PageState>,
  ) {}

  static empty(turn = 0): SessionRecord {
    return new SessionRecord(turn, noCounts(), new Map())
  }

  static decode(stored: Buffer): SessionRecord {
    const { n, t, c } = decode<Stored>(stored, 'a session of the queue')
    const counts = noCounts()
    NAMES.forEach((name, index) => {
      counts[name] = t[index] ?? 0
    })
    const pages = c.map(([page, lease, size, settled, cancelled]): [number, PageState] => {
      return [page, { lease, size, settled: BigInt(`0x${settled}`), cancelled: BigInt(`0x${cancelled}`) }]
    })
    return new SessionRecord(n, counts, new Map(pages))
  }

  encode(): Buffer {
    const rows = [...this.pages].map(([page, { lease, size, settled, cancelled }]): PageRow => {
      return [page, lease, size, settled.toString(16), cancelled.toString(16)]
    })
    const stored: Stored = { n: this.turn, t: NAMES.map((name) => this.counts[name]), c: rows }
    return encode(stored)
  }

  /** A copy to be changed: by the session's own next transaction, or by another's, which leaves the number alone. */
  draft(by: 'itself' | 'another'): SessionRecord {
    return new SessionRecord(by === 'itself' ? this.turn + 1 : this.turn, { ...this.counts }, new Map(this.pages))
  }

  count(name: CountName, by = 1): void {
    this.counts[name] += by
  }

  isLive(page: number, index: number): boolean {
    const state = this.pages.get(page)
    return state !== undefined && (state.settled & bit(index)) === 0n
  }

  isCancelRequested(page: number, index: number): boolean {
    const state = this.pages.get(page)
    return state !== undefined && (state.cancelled & bit(index)) !== 0n
  }

  requestCancel(page: number, index: number): void {
    const state = this.pages.get(page)
    if (state) this.pages.set(page, { ...state, cancelled: state.cancelled | bit(index) })
  }

  /** True if that was the last of its page, which is then over. */
  settle(page: number, index: number): boolean {
    const state = this.pages.get(page)
    if (!state) return false
    const settled = state.settled | bit(index)
    if (settled === bit(state.size) - 1n) this.pages.delete(page)
    else this.pages.set(page, { ...state, settled })
    return !this.pages.has(page)
  }

  /** The indices of a page that are not settled. */
  liveIn(page: number): number[] {
    const size = this.pages.get(page)?.size ?? 0
    return Array.from({ length: size }, (_, index) => index).filter((index) => this.isLive(page, index))
  }

  get holdsClaims(): boolean {
    return this.pages.size > 0
  }
}

function bit(index: number): bigint {
  return 1n << BigInt(index)
}

function noCounts(): Counts {
  return Object.fromEntries(NAMES.map((name) => [name, 0])) as Counts
}

/** The counts of all sessions together. */
export function sumOf(records: Iterable<SessionRecord>): Counts {
  const sum = noCounts()
  for (const { counts } of records) for (const name of NAMES) sum[name] += counts[name]
  return sum
}
