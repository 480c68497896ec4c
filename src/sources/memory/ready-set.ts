import type { Ageing } from '../../driver.js'
import { IndexedHeap } from './indexed-heap.js'
import type { Message } from './message.js'
import { OrderedList, type Placed, precedes } from './ordered-list.js'

/** All ready messages of one priority, in order of arrival. */
class Rank {
  readonly messages = new OrderedList<Message>()
  heapIndex = -1
  /** Whether waiting counts for nothing here: the rank comes after all that age, in order of priority. */
  strict = true
  /** What its priority costs in waiting time, where waiting counts. */
  handicapMs = 0

  constructor(readonly priority: number) {}

  applyAgeing(ageing: Ageing | null): void {
    this.strict = ageing === null || this.priority > ageing.cap
    this.handicapMs = ageing === null || this.strict ? 0 : this.priority * ageing.stepMs
  }
}

/** The ranks that hold something, by whose first message is next. */
class RankHeap extends IndexedHeap<Rank> {
  protected above(a: Rank, b: Rank): boolean {
    if (a.strict || b.strict) return a.strict === b.strict ? a.priority < b.priority : b.strict
    const first = a.messages.first as Message
    const second = b.messages.first as Message
    const gap = first.arrivedAt + a.handicapMs - (second.arrivedAt + b.handicapMs)
    return gap === 0 ? first.arrival < second.arrival : gap < 0
  }
}

/** Where a listing of ready messages stopped. */
export interface ReadyPlace extends Placed {
  readonly priority: number
}

/**
 * The ready messages in the order in which they are claimed: by priority, then arrival; with ageing by the sum of
 * both, which never changes while a message waits, so that no timer is needed for it.
 */
export class ReadySet {
  readonly #ranks = new Map<number, Rank>()
  readonly #heap = new RankHeap()
  #ageing: Ageing | null = null
  #latest: Rank | undefined
  size = 0
  bytes = 0

  setAgeing(ageing: Ageing | null): void {
    this.#ageing = ageing
    for (const rank of this.#ranks.values()) rank.applyAgeing(ageing)
    this.#heap.rebuild()
  }

  insert(message: Message): void {
    const rank = this.#rankOf(message.priority)
    const before = rank.messages.first
    rank.messages.insert(message)
    this.size += 1
    this.bytes += message.size
    if (before === undefined || rank.messages.first !== before) this.#heap.put(rank)
  }

  /** The message that is claimed next. */
  get first(): Message | undefined {
    return this.#heap.first?.messages.first
  }

  /** Takes the message away that is claimed next. */
  shift(): Message | undefined {
    const rank = this.#heap.first
    if (rank === undefined) return undefined
    const message = rank.messages.shift() as Message
    this.size -= 1
    this.bytes -= message.size
    this.#headChanged(rank)
    return message
  }

  remove(message: Message): void {
    const rank = this.#rankOf(message.priority)
    const wasFirst = rank.messages.first === message
    rank.messages.remove(message)
    this.size -= 1
    this.bytes -= message.size
    if (wasFirst) this.#headChanged(rank)
  }

  /** The message that arrived before all others, whatever its priority. */
  get oldest(): Message | undefined {
    let oldest: Message | undefined
    for (const rank of this.#heap.items) {
      const first = rank.messages.first as Message
      if (oldest === undefined || precedes(first, oldest)) oldest = first
    }
    return oldest
  }

  /** Up to `limit` messages after a place, by priority and arrival. */
  after(place: ReadyPlace | undefined, limit: number): Message[] {
    const found: Message[] = []
    for (const rank of this.#ranksFrom(place?.priority ?? 0)) {
      if (found.length >= limit) break
      const from = rank.priority === place?.priority ? place : undefined
      for (const message of rank.messages.after(from, limit - found.length)) found.push(message)
    }
    return found
  }

  /** The rank of a priority; most often the same as last time. */
  #rankOf(priority: number): Rank {
    if (this.#latest?.priority === priority) return this.#latest
    let rank = this.#ranks.get(priority)
    if (rank === undefined) {
      rank = new Rank(priority)
      rank.applyAgeing(this.#ageing)
      this.#ranks.set(priority, rank)
    }
    this.#latest = rank
    return rank
  }

  #ranksFrom(priority: number): Rank[] {
    const ranks = this.#heap.items.filter((rank) => rank.priority >= priority)
    return ranks.sort((a, b) => a.priority - b.priority)
  }

  #headChanged(rank: Rank): void {
    if (rank.messages.size === 0) this.#heap.remove(rank)
    else if (!rank.strict) this.#heap.put(rank)
  }
}
