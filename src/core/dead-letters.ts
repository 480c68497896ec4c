/**
 * The dead letters of a queue.
 */
import type { RequestToken, StoredDeadLetter } from '../driver.js'
import { Eventual } from '../eventual.js'
import { callable, name } from '../options.js'
import { decoded } from './listing.js'
import { PAGE_SIZE, paged } from './paging.js'
import type { QueueCore } from './queue-core.js'

/** A message that could not be handled, with why. */
export interface DeadLetter<T> {
  readonly id: string
  /** Absent when the bytes do not decode. */
  readonly payload: T | undefined
  readonly bytes: Uint8Array
  readonly reason: string
  /** Attempts that were made. */
  readonly attempts: number
  readonly deliveryCount: number
  readonly priority: number
  readonly key: string | undefined
  readonly headers: Readonly<Record<string, string>>
  /** Epoch milliseconds. */
  readonly enqueuedAt: number
  /** Epoch milliseconds. */
  readonly deadAt: number
  /** The reasons of its failures, oldest first; the last ten are kept. */
  readonly errors: readonly string[]
}

/** Which dead letters to act on. */
export type DeadLetterFilter<T> = (letter: DeadLetter<T>) => boolean

type Verb = (ids: readonly string[], token: RequestToken) => PromiseLike<readonly boolean[]>

/** Listed oldest first, page by page. Each `for await` starts anew. */
export class DeadLetters<T> implements AsyncIterable<DeadLetter<T>> {
  readonly #core: QueueCore<T>

  /** @internal */
  constructor(core: QueueCore<T>) {
    this.#core = core
  }

  [Symbol.asyncIterator](): AsyncIterator<DeadLetter<T>, undefined> {
    const iterable = paged(
      this.#core.hub.clock,
      (page) => this.#core.call((driver) => driver.deadLetters(page)),
      (stored) => letter(this.#core, stored),
    )
    return iterable[Symbol.asyncIterator]()
  }

  /** Back to ready, with attempt 1 and a fresh arrival. False when no dead letter has this id. */
  requeue(id: string): Promise<boolean> {
    return this.#one(id, this.#requeueDead)
  }

  /** Gone for good, and its id is free again. False when no dead letter has this id. */
  purge(id: string): Promise<boolean> {
    return this.#one(id, this.#purgeDead)
  }

  /** Requeues all that are there now and pass the filter; fulfils with their number. */
  requeueAll(filter?: DeadLetterFilter<T>): Promise<number> {
    return this.#all(filter, this.#requeueDead)
  }

  /** Purges all that are there now and pass the filter; fulfils with their number. */
  purgeAll(filter?: DeadLetterFilter<T>): Promise<number> {
    return this.#all(filter, this.#purgeDead)
  }

  readonly #requeueDead: Verb = (ids, token) => this.#core.hub.driver.requeueDead(ids, token)
  readonly #purgeDead: Verb = (ids, token) => this.#core.hub.driver.purgeDead(ids, token)

  #one(id: string, verb: Verb): Promise<boolean> {
    return this.#answer(() => {
      name(id, 'id')
      return this.#apply([id], verb).then((changed) => changed === 1)
    })
  }

  #all(filter: DeadLetterFilter<T> | undefined, verb: Verb): Promise<number> {
    return this.#answer(() => {
      if (filter !== undefined) callable(filter, 'filter')
      return this.#core
        .call((driver) => driver.stats())
        .then(({ dead }) => this.#page(filter, verb, dead, undefined, 0))
    })
  }

  /**
   * One page and then the next. The cursor is behind the page, so what is taken out of it does not move the others. What
   * dies meanwhile comes last, so looking at no more than were there at first leaves it alone.
   */
  #page(
    filter: DeadLetterFilter<T> | undefined,
    verb: Verb,
    left: number,
    after: string | undefined,
    sum: number,
  ): Eventual<number> {
    if (left === 0) return Eventual.resolved(sum)
    const page = { limit: Math.min(PAGE_SIZE, left), ...(after !== undefined && { after }) }
    return this.#core
      .call((driver) => driver.deadLetters(page))
      .then(({ items, next }) =>
        this.#applyChosen(items, filter, verb).then((count) =>
          next === undefined ? sum + count : this.#page(filter, verb, left - items.length, next, sum + count),
        ),
      )
  }

  #applyChosen(
    items: readonly StoredDeadLetter[],
    filter: DeadLetterFilter<T> | undefined,
    verb: Verb,
  ): Eventual<number> {
    const chosen = filter ? items.filter((stored) => filter(letter(this.#core, stored))) : items
    if (chosen.length === 0) return Eventual.resolved(0)
    const ids = chosen.map(({ id }) => id)
    return this.#apply(ids, verb)
  }

  #apply(ids: readonly string[], verb: Verb): Eventual<number> {
    const { hub } = this.#core
    return hub
      .ready()
      .then(() => hub.request((token) => verb(ids, token)))
      .then((changed) => changed.filter(Boolean).length)
  }

  #answer<R>(work: () => Eventual<R>): Promise<R> {
    return this.#core.answer(work)
  }
}

function letter<T>(core: QueueCore<T>, stored: StoredDeadLetter): DeadLetter<T> {
  const { id, bytes, reason, attempts, deliveryCount, priority, key, headers = {}, enqueuedAt, deadAt, errors } = stored
  return {
    id,
    payload: decoded(core, bytes),
    bytes,
    reason,
    attempts,
    deliveryCount,
    priority,
    key,
    headers,
    enqueuedAt,
    deadAt,
    errors,
  }
}
