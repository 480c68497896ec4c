const SMALLEST = 16

/** First in, first out, in a ring that grows as needed and keeps no reference to what has left. */
export class Fifo<T> {
  #ring: (T | undefined)[] = new Array<T | undefined>(SMALLEST).fill(undefined)
  #start = 0
  #size = 0

  get size(): number {
    return this.#size
  }

  get first(): T | undefined {
    return this.#ring[this.#start]
  }

  push(item: T): void {
    if (this.#size === this.#ring.length) this.#resize(this.#size * 2)
    this.#ring[(this.#start + this.#size) & (this.#ring.length - 1)] = item
    this.#size += 1
  }

  shift(): T | undefined {
    const item = this.#ring[this.#start]
    if (this.#size === 0) return undefined
    this.#ring[this.#start] = undefined
    this.#start = (this.#start + 1) & (this.#ring.length - 1)
    this.#size -= 1
    if (this.#ring.length > SMALLEST && this.#size * 4 < this.#ring.length) this.#resize(this.#ring.length / 2)
    return item
  }

  /** The newest item that passes the test. */
  findLast(test: (item: T) => boolean): T | undefined {
    for (let offset = this.#size - 1; offset >= 0; offset -= 1) {
      const item = this.#at(offset)
      if (test(item)) return item
    }
    return undefined
  }

  #at(offset: number): T {
    return this.#ring[(this.#start + offset) & (this.#ring.length - 1)] as T
  }

  #resize(capacity: number): void {
    const ring = new Array<T | undefined>(capacity).fill(undefined)
    for (let offset = 0; offset < this.#size; offset += 1) ring[offset] = this.#at(offset)
    this.#ring = ring
    this.#start = 0
  }
}
