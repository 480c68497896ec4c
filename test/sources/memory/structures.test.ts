import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Fifo } from '../../../src/sources/local/fifo.js'
import { type Identified, IdTable } from '../../../src/sources/memory/id-table.js'
import { type HeapItem, IndexedHeap } from '../../../src/sources/memory/indexed-heap.js'
import { OrderedList, precedes } from '../../../src/sources/memory/ordered-list.js'
import { SequenceLog } from '../../../src/sources/memory/sequence-log.js'

class Item implements HeapItem {
  heapIndex = -1
  constructor(public key: number) {}
}

class NumberHeap extends IndexedHeap<Item> {
  protected above(a: Item, b: Item): boolean {
    return a.key < b.key
  }
}

function drainHeap(heap: NumberHeap): number[] {
  const keys: number[] = []
  for (let first = heap.first; first !== undefined; first = heap.first) {
    keys.push(first.key)
    heap.remove(first)
  }
  return keys
}

const ascending = (a: number, b: number) => a - b

describe('IndexedHeap', () => {
  it('gives its items in order, after any mix of additions, moves and removals', () => {
    const step = fc.tuple(fc.constantFrom('add', 'move', 'remove'), fc.nat(50), fc.nat())
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const heap = new NumberHeap()
        let held: Item[] = []
        for (const [kind, key, pick] of steps) {
          const item = held[pick % Math.max(1, held.length)]
          if (kind === 'add' || item === undefined) {
            const added = new Item(key)
            held.push(added)
            heap.put(added)
          } else if (kind === 'move') {
            item.key = key
            heap.put(item)
          } else {
            heap.remove(item)
            held = held.filter((other) => other !== item)
          }
          expect(heap.first?.key).toBe(held.map((other) => other.key).sort(ascending)[0])
        }
        expect(drainHeap(heap)).toEqual(held.map((item) => item.key).sort(ascending))
      }),
    )
  })

  it('keeps nothing of what was removed', () => {
    const heap = new NumberHeap()
    const items = Array.from({ length: 1_000 }, (_, key) => new Item(key))
    for (const item of items) heap.put(item)
    for (const item of items.slice(10)) heap.remove(item)
    expect(heap.items).toHaveLength(10)
    heap.remove(items[500] as Item)
    expect(heap.items).toHaveLength(10)
  })

  it('restores the order when all keys have changed', () => {
    const heap = new NumberHeap()
    const items = Array.from({ length: 100 }, (_, key) => new Item(key))
    for (const item of items) heap.put(item)
    for (const item of items) item.key = (item.key * 37) % 101
    heap.rebuild()
    const keys = items.map((item) => item.key).sort(ascending)
    expect(drainHeap(heap)).toEqual(keys)
  })
})

interface Place {
  arrivedAt: number
  arrival: number
}

const byPlace = (a: Place, b: Place) => (precedes(a, b) ? -1 : 1)

/** The same list, the slow and simple way. */
class SortedModel {
  places: Place[] = []
  private arrivals = 0

  next(arrivedAt: number): Place {
    this.arrivals += 1
    const place = { arrivedAt, arrival: this.arrivals }
    this.places.push(place)
    this.places.sort(byPlace)
    return place
  }
}

/** Does one step to both. */
function apply(list: OrderedList<Place>, model: SortedModel, kind: string, at: number, pick: number): void {
  const picked = model.places[pick % Math.max(1, model.places.length)]
  if (kind === 'shift') {
    expect(list.shift()).toBe(model.places.shift())
  } else if (kind === 'remove' && picked !== undefined) {
    list.remove(picked)
    model.places = model.places.filter((place) => place !== picked)
  } else {
    list.insert(model.next(kind === 'append' ? 100 : at))
  }
}

describe('OrderedList', () => {
  it('stays sorted, whatever is added, taken and removed', () => {
    const step = fc.tuple(fc.constantFrom('append', 'insert', 'insert', 'shift', 'remove'), fc.nat(40), fc.nat())
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), fc.constantFrom(1, 300), (steps, repeat) => {
        const list = new OrderedList<Place>()
        const model = new SortedModel()
        for (const [kind, at, pick] of steps) {
          for (let times = kind === 'append' ? repeat : 1; times > 0; times -= 1) apply(list, model, kind, at, pick)
          expect(list.size).toBe(model.places.length)
          expect(list.first).toBe(model.places[0])
        }
        expect(list.after(undefined, 1_000_000)).toEqual(model.places)
      }),
      { numRuns: 30 },
    )
  })

  it('gives back in order what was put into old places, over many chunks', () => {
    const list = new OrderedList<Place>()
    const places = Array.from({ length: 5_000 }, (_, index) => ({ arrivedAt: (index * 7_919) % 5_000, arrival: index }))
    for (const place of places) list.insert(place)
    const sorted = places.slice().sort(byPlace)
    for (const expected of sorted.slice(0, 1_000)) expect(list.shift()).toBe(expected)
    for (const returned of sorted.slice(0, 1_000).reverse()) list.insert(returned)
    expect(list.after(undefined, 10_000)).toEqual(sorted)
  })

  it('continues after a place that is not there any more', () => {
    const list = new OrderedList<Place>()
    const places = Array.from({ length: 1_000 }, (_, index) => ({ arrivedAt: index, arrival: index }))
    for (const place of places) list.insert(place)
    const place = places[499] as Place
    list.remove(place)
    expect(list.after(place, 2)).toEqual(places.slice(500, 502))
    expect(list.after(places[999], 2)).toEqual([])
  })
})

describe('SequenceLog', () => {
  it('finds what is left, and closes its gaps', () => {
    const log = new SequenceLog<number>()
    for (let number = 1; number <= 10_000; number += 1) log.push(number * 3, number)
    for (let number = 2; number <= 9_999; number += 1) if (number % 100 !== 0) log.remove(number * 3)
    log.remove(1)
    expect(log.size).toBe(101)
    expect(log.first).toBe(1)
    expect(log.after(3, 3)).toEqual([100, 200, 300])
    log.remove(3)
    expect(log.first).toBe(100)
    expect(log.after(-1, 1_000)).toHaveLength(100)
  })

  it('agrees with a sorted array', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.boolean(), fc.nat()), { maxLength: 400 }), (steps) => {
        const log = new SequenceLog<number>()
        let model: number[] = []
        let number = 0
        for (const [add, pick] of steps) {
          if (add) {
            number += 1 + (pick % 3)
            log.push(number, number)
            model.push(number)
          } else {
            const gone = model[pick % Math.max(1, model.length)] ?? 7
            log.remove(gone)
            model = model.filter((other) => other !== gone)
          }
          expect(log.size).toBe(model.length)
          expect(log.first).toBe(model[0])
          expect(log.after(pick % 50, 5)).toEqual(model.filter((other) => other > pick % 50).slice(0, 5))
        }
      }),
    )
  })
})

describe('SequenceLog under a long-held item', () => {
  it('does not grow with what passes', () => {
    const log = new SequenceLog<number>()
    log.push(0, 0)
    for (let number = 1; number <= 100_000; number += 1) {
      log.push(number, number)
      log.remove(number)
      expect(log.span).toBeLessThan(70)
    }
    expect(log.first).toBe(0)
  })
})

describe('IdTable', () => {
  const item = (id: string, idHash: number): Identified => ({ id, idHash })

  it('agrees with a map, also when most hashes collide', () => {
    const step = fc.tuple(fc.boolean(), fc.nat({ max: 300 }))
    const hashOf = fc.constantFrom<(id: number) => number>(
      (id) => 1 + (id % 3),
      (id) => 62 + (id % 5),
      (id) => -1 - (id % 7),
      (id) => Math.imul(id + 1, 0x9e37_79b1),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 500 }), hashOf, (steps, hash) => {
        const table = new IdTable<Identified>()
        const model = new Map<string, Identified>()
        for (const [add, number] of steps) {
          const id = `${number}`
          const known = model.get(id)
          expect(table.find(id, hash(number))).toBe(known)
          if (add && known === undefined) {
            const added = item(id, hash(number))
            model.set(id, added)
            table.add(added)
          } else if (!add && known !== undefined) {
            model.delete(id)
            table.remove(known)
          }
        }
        expect(table.size).toBe(model.size)
        const all = Array.from({ length: 301 }, (_, number) => table.find(`${number}`, hash(number)))
        expect(all).toEqual(Array.from({ length: 301 }, (_, number) => model.get(`${number}`)))
      }),
    )
  })

  it('grows and shrinks with what it holds, and not with what has passed', () => {
    const table = new IdTable<Identified>()
    const held: Identified[] = []
    for (let number = 0; number < 50_000; number += 1) {
      const id = `id-${number}`
      const added = item(id, table.hashOf(id))
      table.add(added)
      held.push(added)
      if (number >= 1_000) table.remove(held[number - 1_000] as Identified)
      expect(table.capacity).toBeLessThanOrEqual(2_048)
    }
    for (const last of held.slice(-1_000)) expect(table.get(last.id)).toBe(last)
    for (const last of held.slice(-1_000)) table.remove(last)
    expect(table.capacity).toBe(64)
  })

  it('tells like ids apart', () => {
    const table = new IdTable<Identified>()
    const hashes = new Set<number>()
    for (let number = 0; number < 10_000; number += 1) hashes.add(table.hashOf(`order-${number}`))
    expect(hashes.size).toBeGreaterThan(9_990)
    expect(new IdTable<Identified>().hashOf('order-1')).not.toBe(table.hashOf('order-1'))
  })
})

describe('Fifo', () => {
  it('gives back in the order of arrival while it grows and shrinks', () => {
    const fifo = new Fifo<number>()
    let next = 0
    let expected = 0
    for (const [pushes, shifts] of [
      [10, 5],
      [100, 20],
      [5_000, 5_000],
      [3, 88],
    ] as const) {
      for (let count = 0; count < pushes; count += 1) fifo.push(next++)
      for (let count = 0; count < shifts; count += 1) expect(fifo.shift()).toBe(expected++)
      expect(fifo.size).toBe(next - expected)
      expect(fifo.first).toBe(next === expected ? undefined : expected)
    }
    expect(fifo.shift()).toBeUndefined()
  })

  it('finds the newest that passes', () => {
    const fifo = new Fifo<number>()
    for (let value = 0; value < 40; value += 1) fifo.push(value)
    expect(fifo.findLast((value) => value % 7 === 0)).toBe(35)
    expect(fifo.findLast((value) => value > 100)).toBeUndefined()
  })
})
