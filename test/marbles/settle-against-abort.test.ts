/** Everything that can happen to a delivery in one frame, in every order. */
import type { Delivery, Settlement } from 'millrace'
import { type MarbleHelpers, marbles, type TestQueue } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { seenNext } from './cancelling.js'
import { at } from './handlers.js'

type Act = (test: Scene) => void

/** One delivery in the hands of a consumer, and the acts of one frame on it. */
class Scene {
  readonly answers: Settlement[] = []
  readonly acks: string[] = []
  readonly controller = new AbortController()
  delivery: Delivery<string> | undefined
  readonly queue: TestQueue<string>
  released = -1

  constructor(
    readonly helpers: MarbleHelpers,
    latency: string,
  ) {
    this.queue = helpers.testQueue('a', undefined, { latencies: { settle: latency } })
    this.queue.acks.subscribe((id) => this.acks.push(id))
    const source = this.queue.source({ signal: this.controller.signal, graceMs: 0 })
    const subscription = source.subscribe({
      next: (delivery) => {
        this.delivery ??= delivery
      },
      error: () => {},
    })
    this.unsubscribe = () => subscription.unsubscribe()
    this.stop = () =>
      void source.stop().then(({ released }) => {
        this.released = released
      })
  }

  readonly unsubscribe: () => void
  readonly stop: () => void

  settle(how: (delivery: Delivery<string>) => Promise<Settlement>): void {
    void how(this.delivery as Delivery<string>).then((settlement) => this.answers.push(settlement))
  }
}

const acts: Record<string, Act> = {
  ack: (scene) => scene.settle((d) => d.ack()),
  requeue: (scene) => scene.settle((d) => d.requeue()),
  abort: ({ controller }) => controller.abort(),
  unsubscribe: ({ unsubscribe }) => unsubscribe(),
  stop: ({ stop }) => stop(),
}

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length < 2) return [[...items]]
  return items.flatMap((item, index) =>
    permutations(items.filter((_, other) => other !== index)).map((rest) => [item, ...rest]),
  )
}

const CANCELS = ['abort', 'unsubscribe', 'stop']
const ORDERS = permutations(['ack', 'requeue', ...CANCELS])

function play(order: readonly string[], latency: string, apart: number) {
  const result = { answers: [] as Settlement[], acks: [] as string[], seen: [] as string[], claimed: -1 }
  marbles((helpers) => {
    const scene = new Scene(helpers, latency)
    for (const [index, name] of order.entries()) at(helpers, 3 + index * apart, () => (acts[name] as Act)(scene))
    result.answers = scene.answers
    result.acks = scene.acks
    result.seen = seenNext(helpers, scene.queue, 60)
    at(helpers, 59, () => {
      result.claimed = scene.queue.inspect().stats.claimed
    })
  })
  return result
}

/** What must come of it: the first of the settlements and the cancels decides. */
function expected(order: readonly string[]) {
  const first = order[0] as string
  const answers = (who: string): Settlement => {
    const settlements = order.filter((name) => !CANCELS.includes(name))
    if (CANCELS.includes(first)) return 'stale'
    return settlements[0] === who ? 'settled' : 'already-settled'
  }
  const settled = new Set(['ack', 'requeue'].map(answers))
  const seen = first === 'ack' ? [] : first === 'requeue' ? ['a 2 2'] : ['a 1 2']
  return { settled, seen, acks: first === 'ack' ? 1 : 0 }
}

describe.each([
  ['at once', 'r'],
  ['late', '-s-r'],
])('with a store that answers %s', (_name, latency) => {
  it.each(ORDERS.map((order) => [order.join(', '), order] as const))('in one frame: %s', (_title, order) => {
    const result = play(order, latency, 0)
    const { settled, seen, acks } = expected(order)
    expect(new Set(result.answers)).toEqual(settled)
    expect(result.answers).toHaveLength(2)
    expect(result.acks).toHaveLength(acks + (seen.length > 0 ? 1 : 0))
    expect(result.seen).toEqual(seen)
    expect(result.claimed).toBe(0)
  })
})

it('the message is delivered to the next consumer exactly when the ack lost', () => {
  for (const order of ORDERS) {
    const { seen } = play(order, 'r', 1)
    expect(seen.length).toBe(order[0] === 'ack' ? 0 : 1)
  }
})
