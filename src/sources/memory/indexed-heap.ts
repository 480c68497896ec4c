/** Something that knows its index in a heap, -1 when it is in none. */
export interface HeapItem {
  heapIndex: number
}

/**
 * A heap whose items know where they are, so that any of them is moved or removed at once.
 *
 * A removal leaves nothing behind: a heap through which millions of leases pass in a minute stays as small as the
 * number of leases that are live. The order comes from a subclass, not from a function, so that it is inlined.
 */
export abstract class IndexedHeap<T extends HeapItem> {
  readonly items: T[] = []

  /** Whether `a` belongs above `b`. */
  protected abstract above(a: T, b: T): boolean

  get first(): T | undefined {
    return this.items[0]
  }

  /** Adds an item, or finds its new place after its order has changed. */
  put(item: T): void {
    if (item.heapIndex < 0) {
      item.heapIndex = this.items.length
      this.items.push(item)
      this.#rise(item)
    } else {
      this.#settle(item)
    }
  }

  /** Removes an item; harmless when it is not here. */
  remove(item: T): void {
    const index = item.heapIndex
    if (index < 0) return
    item.heapIndex = -1
    const last = this.items.pop() as T
    if (last === item) return
    last.heapIndex = index
    this.items[index] = last
    this.#settle(last)
  }

  /** Restores the order after the order of many items has changed. */
  rebuild(): void {
    for (let index = (this.items.length >> 2) | 0; index >= 0; index -= 1) {
      const item = this.items[index]
      if (item !== undefined) this.#sink(item)
    }
  }

  #settle(item: T): void {
    const index = item.heapIndex
    this.#rise(item)
    if (item.heapIndex === index) this.#sink(item)
  }

  #rise(item: T): void {
    const { items } = this
    let index = item.heapIndex
    while (index > 0) {
      const parentIndex = (index - 1) >> 2
      const parent = items[parentIndex] as T
      if (!this.above(item, parent)) break
      items[index] = parent
      parent.heapIndex = index
      index = parentIndex
    }
    items[index] = item
    item.heapIndex = index
  }

  #sink(item: T): void {
    const { items } = this
    const { length } = items
    let index = item.heapIndex
    for (;;) {
      const firstChild = index * 4 + 1
      if (firstChild >= length) break
      const end = Math.min(firstChild + 4, length)
      let childIndex = firstChild
      let child = items[firstChild] as T
      for (let at = firstChild + 1; at < end; at += 1) {
        const other = items[at] as T
        if (this.above(other, child)) {
          child = other
          childIndex = at
        }
      }
      if (!this.above(child, item)) break
      items[index] = child
      child.heapIndex = index
      index = childIndex
    }
    items[index] = item
    item.heapIndex = index
  }
}
