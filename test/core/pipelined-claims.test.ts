import { BackendError, type Delivery, mergeMap, pipe, Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { Subject } from 'rxjs'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Backend, ClaimReply, ClaimRequest, DriverFeatures, Hint } from '../../src/driver.js'
import { Eventual } from '../../src/eventual.js'
import { seeded } from '../../src/testing/conformance/wait.js'
import { eventsOf } from '../support/events.js'
import { expectStats } from '../support/queues.js'
import { until } from '../support/wait.js'

/** A claim that has been asked for. The store looks when it is told to. */
interface Asked {
  readonly max: number
  readonly apart: boolean
  answer(): void
  fail(error: Error): void
}

/** A store that answers claims, and hints, only when it is told to. */
class Gated {
  readonly asked: Asked[] = []
  readonly hints = new Subject<Hint>()
  readonly #store = memoryBackend()
  readonly backend: Backend

  constructor(features: Partial<DriverFeatures>) {
    this.backend = {
      name: 'gated',
      features: { ...this.#store.features, ordered: true, pipelined: true, ...features },
      open: (queue, owner) => {
        const driver = this.#store.open(queue, owner)
        const claim = (request: ClaimRequest) => this.#ask(request, () => driver.claim(request))
        return new Proxy(driver, {
          get: (target, key) => {
            if (key === 'claim') return claim
            if (key === 'arrivals') return () => this.hints
            const value = Reflect.get(target, key)
            return typeof value === 'function' ? value.bind(target) : value
          },
        })
      },
      close: () => this.#store.close(),
    }
  }

  /** Answers the first claim that is not answered, and gives what it asked for. */
  async next(): Promise<Pick<Asked, 'max' | 'apart'>> {
    await until('a claim is asked for', () => this.asked.length > 0)
    const { max, apart, answer } = this.asked.shift() as Asked
    answer()
    await turn()
    return { max, apart }
  }

  get sizes(): number[] {
    return this.asked.map(({ max }) => max)
  }

  #ask({ max, apart = false }: ClaimRequest, run: () => PromiseLike<ClaimReply>): Eventual<ClaimReply> {
    const reply = new Eventual<ClaimReply>()
    this.asked.push({ max, apart, answer: () => reply.resolve(run()), fail: (error) => reply.reject(error) })
    return reply
  }
}

/** All that follows from what has just happened has been done. */
async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve))
}

async function queueOn(gated: Gated, count: number): Promise<Queue<number>> {
  const queue = new Queue<number>('q', { backend: gated.backend })
  onTestFinished(async () => {
    for (const each of gated.asked) each.answer()
    await queue.close({ graceMs: 0 })
  })
  await queue.enqueueAll(Array.from({ length: count }, (_, payload) => ({ payload, id: String(payload) })))
  return queue
}

function consume(queue: Queue<number>, lanes: number, handler: (delivery: Delivery<number>) => unknown = () => {}) {
  const seen: number[] = []
  const source = queue.source({ graceMs: 0 })
  const events = eventsOf(source)
  const errors: unknown[] = []
  const work = mergeMap(async (delivery: Delivery<number>) => {
    seen.push(delivery.payload)
    await handler(delivery)
  }, lanes)
  pipe(source, work).subscribe({ error: (error) => errors.push(error) })
  return { source, seen, events, errors }
}

const upTo = (count: number) => Array.from({ length: count }, (_, index) => index)

describe('on a store that is pipelined', () => {
  it('a consumer with lanes enough has two claims on their way, and handles one half while the other is fetched', async () => {
    const gated = new Gated({})
    const { seen } = consume(await queueOn(gated, 100), 8)
    // Nobody knows yet whether there is as much.
    expect(await gated.next()).toEqual({ max: 8, apart: false })
    expect(seen).toEqual(upTo(8))
    expect(gated.asked.map(({ max, apart }) => [max, apart])).toEqual([
      [4, false],
      [4, true],
    ])
    await gated.next()
    expect(seen).toEqual(upTo(12))
    // Sent while the other is still on its way, so in a turn of its own.
    expect(gated.asked.map(({ max, apart }) => [max, apart])).toEqual([
      [4, true],
      [4, false],
    ])
    for (let round = 4; round <= 20; round += 1) {
      expect(await gated.next()).toMatchObject({ max: 4 })
      expect(seen).toEqual(upTo(4 * round))
      expect(gated.sizes).toEqual([4, 4])
    }
  })

  it('never asks for more than its lanes can work on, whatever ends first', async () => {
    const gated = new Gated({})
    const queue = await queueOn(gated, 600)
    const random = seeded(1)
    let [working, most, overlapping] = [0, 0, 0]
    const ends: (() => void)[] = []
    const { seen } = consume(queue, 12, async () => {
      working += 1
      most = Math.max(most, working)
      await new Promise<void>((resolve) => ends.push(resolve))
      working -= 1
    })
    while (seen.length < 600) {
      if (gated.asked.length > 0 && random() < 0.4) await gated.next()
      for (const end of ends.splice(0, Math.floor(8 * random()))) end()
      await turn()
      const { claimed } = await queue.stats()
      expect(claimed + gated.sizes.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(12)
      if (gated.asked.length === 2) overlapping += 1
    }
    expect([most, overlapping > 100]).toEqual([12, true])
    for (const end of ends) end()
  })

  it.each([1, 2, 5, 7])('%i lanes are too few for a second claim', async (lanes) => {
    const gated = new Gated({})
    const { seen } = consume(await queueOn(gated, 40), lanes)
    while (seen.length < 40) {
      await gated.next()
      expect(gated.asked.length).toBeLessThanOrEqual(1)
    }
    expect(seen).toEqual(upTo(40))
  })

  it('one answer that falls short does not end the other, nor is a message missed that comes between them', async () => {
    const gated = new Gated({})
    const queue = await queueOn(gated, 10)
    const { seen } = consume(queue, 8)
    await gated.next()
    await gated.next()
    expect(seen).toEqual(upTo(10))
    // Short, while the other one is still on its way: that one sees what comes now.
    await queue.enqueue(10, { id: '10' })
    gated.hints.next({ kind: 'ready' })
    await gated.next()
    expect(seen).toEqual(upTo(11))
    for (let message = 11; message < 15; message += 1) {
      await queue.enqueue(message, { id: String(message) })
      gated.hints.next({ kind: 'ready' })
      while (!seen.includes(message)) await gated.next()
    }
    expect(seen).toEqual(upTo(15))
  })

  it('an answer that overtakes the other changes nothing', async () => {
    const gated = new Gated({})
    const { seen } = consume(await queueOn(gated, 40), 8)
    await gated.next()
    while (seen.length < 40) {
      gated.asked.reverse()
      await gated.next()
    }
    expect(seen).toEqual(upTo(40))
  })

  it('a stop waits for both, and what they grant goes back', async () => {
    const gated = new Gated({})
    const queue = await queueOn(gated, 40)
    const { source, seen } = consume(queue, 8)
    await gated.next()
    expect(gated.sizes).toEqual([4, 4])
    let released: unknown
    const stopping = source.stop({ graceMs: 60_000 }).then((account) => {
      released = account
    })
    await gated.next()
    await turn()
    expect(released).toBeUndefined()
    expect((await queue.stats()).claimed).toBe(0)
    await gated.next()
    await stopping
    expect(released).toMatchObject({ abandoned: 0 })
    expect(seen).toEqual(upTo(8))
    await expectStats(queue, { ready: 32, claimed: 0, ackedTotal: 8 })
  })

  it('one claim that is refused fails the stream, and what the other one grants goes back', async () => {
    const gated = new Gated({})
    const queue = await queueOn(gated, 40)
    const { source, errors } = consume(queue, 8)
    await gated.next()
    gated.asked.shift()?.fail(new BackendError('no'))
    await turn()
    await gated.next()
    await source.stop()
    expect(errors).toMatchObject([{ message: 'no' }])
    await expectStats(queue, { ready: 32, claimed: 0, ackedTotal: 8 })
  })
})

describe('a consumer that stops while its claim is on its way', () => {
  it.each([true, false])(
    'passes the hint on that woke it, if there is more than it was granted (pipelined: %s)',
    async (pipelined) => {
      const gated = new Gated({ pipelined })
      const queue = await queueOn(gated, 0)
      const [first, second] = [consume(queue, 2), consume(queue, 2)]
      await gated.next()
      await gated.next()
      await queue.enqueueAll(upTo(10).map((payload) => ({ payload })))
      gated.hints.next({ kind: 'ready' })
      await turn()
      // The one that has waited longest is woken.
      expect(gated.sizes).toEqual([2])
      const stopping = first.source.stop()
      await gated.next()
      await stopping
      expect(first.seen).toEqual([])
      while (second.seen.length < 10) await gated.next()
    },
  )
})

describe('on a store that is not pipelined', () => {
  it('there is one claim at a time', async () => {
    const gated = new Gated({ pipelined: false })
    const { seen } = consume(await queueOn(gated, 40), 16)
    while (seen.length < 40) {
      await gated.next()
      expect(gated.asked.length).toBeLessThanOrEqual(1)
    }
  })
})
