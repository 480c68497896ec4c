/** Something that is found by its id. It keeps the hash of the id, so that the id need not be read again. */
export interface Identified {
  readonly id: string
  /** What {@link IdTable.hashOf} answers for the id. */
  readonly idHash: number
}

const SMALLEST = 64
const VACANT = 0

/**
 * Finds items by id.
 *
 * In a `Map` each removal leaves a gap, until all that is left is copied to close the gaps. Here the room of what was
 * removed is used again: a queue through which millions of ids pass makes no garbage and never stops to copy. The
 * larger the queue, the more that is worth.
 */
export class IdTable<T extends Identified> {
  /** The hash of what is in each slot. It is looked at first, so that few slots cost the way to an item. */
  #hashes = new Int32Array(SMALLEST)
  #items: (T | undefined)[] = new Array<T | undefined>(SMALLEST).fill(undefined)
  #mask = SMALLEST - 1
  #size = 0
  /** Differs in each table, so that nobody can choose ids that collide. */
  readonly #seed = Math.trunc(Math.random() * 0x7fff_ffff)

  get size(): number {
    return this.#size
  }

  /** How many slots there are. */
  get capacity(): number {
    return this.#hashes.length
  }

  /** The hash by which an id is found in this table, and only in this one. */
  hashOf(id: string): number {
    let hash = this.#seed
    for (let index = 0; index < id.length; index += 1) {
      hash = Math.imul(hash ^ id.charCodeAt(index), 0x5bd1_e995) ^ (hash >>> 15)
    }
    hash = Math.imul(hash ^ (hash >>> 13), 0x5bd1_e995)
    hash ^= hash >>> 15
    return hash === VACANT ? 1 : hash
  }

  get(id: string): T | undefined {
    return this.find(id, this.hashOf(id))
  }

  /** The item of an id whose hash is known. */
  find(id: string, hash: number): T | undefined {
    const hashes = this.#hashes
    for (let slot = hash & this.#mask; ; slot = (slot + 1) & this.#mask) {
      const found = hashes[slot]
      if (found === VACANT) return undefined
      if (found === hash && this.#items[slot]?.id === id) return this.#items[slot]
    }
  }

  /** Adds an item whose id is not here yet. */
  add(item: T): void {
    if ((this.#size + 1) * 4 > this.#hashes.length * 3) this.#resize(this.#hashes.length * 2)
    this.#size += 1
    this.#place(item)
  }

  /** Removes an item that is here. */
  remove(item: T): void {
    let slot = item.idHash & this.#mask
    while (this.#items[slot] !== item) slot = (slot + 1) & this.#mask
    this.#vacate(slot)
    this.#size -= 1
    if (this.#hashes.length > SMALLEST && this.#size * 8 < this.#hashes.length) this.#resize(this.#hashes.length / 2)
  }

  #place(item: T): void {
    let slot = item.idHash & this.#mask
    while (this.#hashes[slot] !== VACANT) slot = (slot + 1) & this.#mask
    this.#hashes[slot] = item.idHash
    this.#items[slot] = item
  }

  /** Empties a slot, and moves up what would otherwise not be found any more. */
  #vacate(slot: number): void {
    const hashes = this.#hashes
    const mask = this.#mask
    let gap = slot
    for (let next = (slot + 1) & mask; hashes[next] !== VACANT; next = (next + 1) & mask) {
      const home = (hashes[next] as number) & mask
      if (((next - home) & mask) < ((next - gap) & mask)) continue
      hashes[gap] = hashes[next] as number
      this.#items[gap] = this.#items[next]
      gap = next
    }
    hashes[gap] = VACANT
    this.#items[gap] = undefined
  }

  #resize(capacity: number): void {
    const items = this.#items
    this.#hashes = new Int32Array(capacity)
    this.#items = new Array<T | undefined>(capacity).fill(undefined)
    this.#mask = capacity - 1
    for (const item of items) if (item !== undefined) this.#place(item)
  }
}
