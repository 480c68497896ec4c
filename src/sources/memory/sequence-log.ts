/**
 * A list of numbered items, added with rising numbers and removed in any order.
 *
 * The oldest items are removed at once, others leave a gap; when gaps outnumber the items they are closed. So its size
 * stays within twice what it holds, and any number is found by a binary search.
 */
export class SequenceLog<T> {
  #numbers: number[] = []
  #items: (T | undefined)[] = []
  #start = 0
  #size = 0

  get size(): number {
    return this.#size
  }

  /** How many entries it keeps, gaps among them. */
  get span(): number {
    return this.#items.length
  }

  /** The item with the lowest number. */
  get first(): T | undefined {
    return this.#items[this.#start]
  }

  /** Adds an item under a number above all that were given before. */
  push(number: number, item: T): void {
    this.#numbers.push(number)
    this.#items.push(item)
    this.#size += 1
  }

  /** Removes the item of a number; harmless when there is none. */
  remove(number: number): void {
    const index = this.#numbers[this.#start] === number ? this.#start : this.#search(number)
    if (this.#numbers[index] !== number || this.#items[index] === undefined) return
    this.#items[index] = undefined
    this.#size -= 1
    if (index === this.#start) this.#skipGaps()
    if (this.#items.length > 64 && this.#items.length > this.#size * 2) this.#closeGaps()
  }

  /** Up to `limit` items with numbers above the given one, lowest first. */
  after(number: number, limit: number): T[] {
    const found: T[] = []
    for (let index = this.#search(number + 1); index < this.#items.length && found.length < limit; index += 1) {
      const item = this.#items[index]
      if (item !== undefined) found.push(item)
    }
    return found
  }

  #skipGaps(): void {
    const { length } = this.#items
    while (this.#start < length && this.#items[this.#start] === undefined) this.#start += 1
  }

  #closeGaps(): void {
    let kept = 0
    for (let index = this.#start; index < this.#items.length; index += 1) {
      const item = this.#items[index]
      if (item === undefined) continue
      this.#items[kept] = item
      this.#numbers[kept] = this.#numbers[index] as number
      kept += 1
    }
    this.#items.length = kept
    this.#numbers.length = kept
    this.#start = 0
  }

  /** The index of the first entry whose number is not below the given one. */
  #search(number: number): number {
    let low = this.#start
    let high = this.#numbers.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.#numbers[middle] as number) < number) low = middle + 1
      else high = middle
    }
    return low
  }
}
