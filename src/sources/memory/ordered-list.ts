/** Something with a place in an order: first by instant, then by number. No two in one list share both. */
export interface Placed {
  readonly arrivedAt: number
  readonly arrival: number
}

/** Whether `a` comes before `b`. */
export function precedes(a: Placed, b: Placed): boolean {
  return a.arrivedAt < b.arrivedAt || (a.arrivedAt === b.arrivedAt && a.arrival < b.arrival)
}

const CAPACITY = 256

/**
 * A sorted list that is cheap at both ends.
 *
 * Appending in order and taking the first cost a few instructions. Putting something into its old place, or removing
 * from the middle, is a binary search and a short move, whatever the length. The items lie in chunks, each sorted.
 */
export class OrderedList<T extends Placed> {
  readonly #chunks: Chunk<T>[] = []
  #size = 0

  get size(): number {
    return this.#size
  }

  get first(): T | undefined {
    const chunk = this.#chunks[0]
    return chunk === undefined ? undefined : chunk.items[chunk.start]
  }

  insert(item: T): void {
    this.#size += 1
    const chunks = this.#chunks
    const tail = chunks[chunks.length - 1]
    if (tail === undefined) chunks.push(new Chunk(item))
    else if (tail.start !== tail.end && precedes(item, tail.last)) this.#insertInside(item)
    else if (tail.end < CAPACITY) tail.items[tail.end++] = item
    else chunks.push(new Chunk(item))
  }

  /** Takes the first item away. */
  shift(): T | undefined {
    const chunk = this.#chunks[0]
    if (chunk === undefined || chunk.start === chunk.end) return undefined
    const item = chunk.items[chunk.start] as T
    chunk.items[chunk.start++] = undefined
    this.#size -= 1
    if (chunk.start === chunk.end) this.#drained(0)
    return item
  }

  /** Removes an item that is in the list. */
  remove(item: T): void {
    const index = this.#chunkOf(item)
    const chunk = this.#chunks[index] as Chunk<T>
    chunk.removeAt(chunk.search(item))
    this.#size -= 1
    if (chunk.start === chunk.end) this.#drained(index)
  }

  /** Up to `limit` items that come after a place, or from the start. */
  after(place: Placed | undefined, limit: number): T[] {
    const found: T[] = []
    let index = place === undefined ? 0 : this.#chunkOf(place)
    for (; index < this.#chunks.length && found.length < limit; index += 1) {
      const chunk = this.#chunks[index] as Chunk<T>
      for (let at = chunk.start; at < chunk.end && found.length < limit; at += 1) {
        const item = chunk.items[at] as T
        if (place === undefined || precedes(place, item)) found.push(item)
      }
    }
    return found
  }

  #insertInside(item: T): void {
    let index = this.#chunkOf(item)
    let chunk = this.#chunks[index] as Chunk<T>
    if (chunk.end - chunk.start === CAPACITY) {
      const upper = chunk.split()
      this.#chunks.splice(index + 1, 0, upper)
      if (!precedes(item, upper.first)) {
        index += 1
        chunk = upper
      }
    }
    chunk.insertAt(chunk.search(item), item)
  }

  /** The last chunk that starts at or before the place; the first chunk if none does. */
  #chunkOf(place: Placed): number {
    let low = 0
    let high = this.#chunks.length - 1
    while (low < high) {
      const middle = (low + high + 1) >>> 1
      if (precedes(place, (this.#chunks[middle] as Chunk<T>).first)) high = middle - 1
      else low = middle
    }
    return low
  }

  /** Drops an empty chunk, but keeps the last one, so that a short queue allocates nothing. */
  #drained(index: number): void {
    if (this.#chunks.length === 1) (this.#chunks[0] as Chunk<T>).rewind()
    else if (index === 0) this.#chunks.shift()
    else this.#chunks.splice(index, 1)
  }
}

/** A sorted run of items between `start` and `end`; the free space on either side is used to insert. */
class Chunk<T extends Placed> {
  readonly items: (T | undefined)[]
  start = 0
  end = 1

  constructor(first: T) {
    this.items = [first]
  }

  get first(): T {
    return this.items[this.start] as T
  }

  get last(): T {
    return this.items[this.end - 1] as T
  }

  rewind(): void {
    this.start = 0
    this.end = 0
  }

  /** The index of the first item that does not come before the place. */
  search(place: Placed): number {
    let low = this.start
    let high = this.end
    while (low < high) {
      const middle = (low + high) >>> 1
      if (precedes(this.items[middle] as T, place)) low = middle + 1
      else high = middle
    }
    return low
  }

  /** Inserts by moving the shorter side. The chunk must not be full. */
  insertAt(index: number, item: T): void {
    const { items } = this
    const towardsStart = this.start > 0 && (this.end === CAPACITY || index - this.start < this.end - index)
    if (towardsStart) {
      this.start -= 1
      for (let at = this.start; at < index - 1; at += 1) items[at] = items[at + 1]
      items[index - 1] = item
    } else {
      for (let at = this.end; at > index; at -= 1) items[at] = items[at - 1]
      items[index] = item
      this.end += 1
    }
  }

  removeAt(index: number): void {
    const { items } = this
    if (index - this.start < this.end - index) {
      for (let at = index; at > this.start; at -= 1) items[at] = items[at - 1]
      items[this.start++] = undefined
    } else {
      this.end -= 1
      for (let at = index; at < this.end; at += 1) items[at] = items[at + 1]
      items[this.end] = undefined
    }
  }

  /** Moves the upper half into a chunk of its own. */
  split(): Chunk<T> {
    const middle = (this.start + this.end) >>> 1
    const upper = new Chunk(this.items[middle] as T)
    for (let at = middle + 1; at < this.end; at += 1) upper.items[upper.end++] = this.items[at]
    for (let at = middle; at < this.end; at += 1) this.items[at] = undefined
    this.end = middle
    return upper
  }
}
