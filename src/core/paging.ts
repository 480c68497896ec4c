/**
 * Walks a paged listing, one page at a time, as it is asked for.
 */
import type { Page, Paged } from '../driver.js'
import { Eventual } from '../eventual.js'
import type { Clock } from './clock.js'

/** Entries of one page. */
export const PAGE_SIZE = 100

type Result<T> = IteratorResult<T, undefined>

/** An iterable over all pages. The next page is read when the last is used up; leaving the loop reads no further. */
export function paged<S, T>(
  clock: Clock,
  read: (page: Page) => Eventual<Paged<S>>,
  map: (item: S) => T,
  limit = Number.POSITIVE_INFINITY,
): AsyncIterable<T> {
  return { [Symbol.asyncIterator]: () => new PagedIterator(clock, read, map, limit) }
}

class PagedIterator<S, T> implements AsyncIterator<T, undefined> {
  private items: readonly S[] = []
  private index = 0
  private after: string | undefined
  private last = false
  private turn: Eventual<unknown> = Eventual.resolved(undefined)

  constructor(
    private readonly clock: Clock,
    private readonly read: (page: Page) => Eventual<Paged<S>>,
    private readonly map: (item: S) => T,
    private left: number,
  ) {}

  next(): Promise<Result<T>> {
    // Concurrent calls are answered in order, each after the one before it.
    const result = this.turn.then(
      () => this.step(),
      () => this.step(),
    )
    this.turn = result
    return this.clock.promise(result)
  }

  return(): Promise<Result<T>> {
    this.left = 0
    return this.clock.promise(Eventual.resolved<Result<T>>({ done: true, value: undefined }))
  }

  private step(): Result<T> | Eventual<Result<T>> {
    if (this.left <= 0) return { done: true, value: undefined }
    if (this.index < this.items.length) {
      this.left -= 1
      this.index += 1
      return { done: false, value: this.map(this.items[this.index - 1] as S) }
    }
    if (this.last) return { done: true, value: undefined }
    return this.turnPage().then(() => this.step())
  }

  private turnPage(): Eventual<void> {
    const page = { limit: Math.min(PAGE_SIZE, this.left), ...(this.after !== undefined && { after: this.after }) }
    return this.read(page).then(({ items, next }) => {
      this.items = items
      this.index = 0
      this.after = next
      this.last = next === undefined
    })
  }
}
