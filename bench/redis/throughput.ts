/** How many messages get in, and how many get handled, in a second. */
import { consumeAll, fill, PAYLOAD, type Payload } from '../messages.js'
import type { Sample, Scenario } from '../runner.js'
import { timed } from '../runner.js'
import { scaled, withConnection } from '../trial.js'
import { byHand, byHandGrouped } from './by-hand.js'
import { costOf, type Server } from './server.js'
import type { Product, Store } from './store.js'

const BATCH = 100
const AT_ONCE = 100

/** One run of `count` messages on a queue that is new. */
type Run = (store: Store, count: number, measured: Measured) => Promise<Sample>
type Measured = (work: () => Promise<unknown>) => Promise<Sample>

export function enqueueScenarios(server: Server, peers: readonly Product[]): Scenario[] {
  const products = [...peers, byHand]
  const one = (title: string, own: readonly Product[], count: number, run: Run) =>
    scenario(server, `enqueue: ${title}`, own, count, run)
  return [
    one('each awaited', products, 5_000, enqueueOneByOne),
    one(`${AT_ONCE} asked for at once`, [...products, byHandGrouped], 20_000, enqueueAtOnce),
    one(`batches of ${BATCH}`, products, 50_000, enqueueBatches),
  ]
}

export function claimScenarios(server: Server, products: readonly Product[]): Scenario[] {
  const all = [...products, byHand]
  const batching = all.filter(({ batches }) => batches)
  const one = (title: string, own: readonly Product[], count: number, run: Run) =>
    scenario(server, `claim: claim and ack, no-op async handler, ${title}`, own, count, run)
  return [
    one('n = 1', all, 10_000, consumeFilled(1)),
    one('n = 10', all, 20_000, consumeFilled(10)),
    one('n = 100', all, 40_000, consumeFilled(100)),
    one('batches of 50', batching, 40_000, consumeFilledInBatches(50)),
    one('batches of 100', batching, 40_000, consumeFilledInBatches(100)),
  ]
}

function scenario(server: Server, title: string, products: readonly Product[], messages: number, run: Run): Scenario {
  const count = scaled(messages)
  const contenders = products.map((product) => ({
    name: product.name,
    run: async () => {
      await server.clear()
      return withConnection(product, server.address, async (connection) =>
        run(await connection.open('bench'), count, async (work) => {
          const [sample, amounts] = await costOf(server, count, () => timed(count, work))
          return { ...sample, amounts }
        }),
      )
    },
  }))
  return { title, baseline: 'millrace', contenders }
}

function enqueueOneByOne({ enqueue }: Store, count: number, measured: Measured): Promise<Sample> {
  return measured(async () => {
    for (let index = 0; index < count; index += 1) await enqueue(PAYLOAD)
  })
}

function enqueueBatches({ enqueueAll }: Store, count: number, measured: Measured): Promise<Sample> {
  return measured(async () => {
    for (let left = count; left > 0; left -= BATCH) {
      await enqueueAll(new Array<Payload>(Math.min(left, BATCH)).fill(PAYLOAD))
    }
  })
}

function enqueueAtOnce({ enqueue }: Store, count: number, measured: Measured): Promise<Sample> {
  return measured(async () => {
    for (let left = count; left > 0; left -= AT_ONCE) {
      await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, () => enqueue(PAYLOAD)))
    }
  })
}

function consumeFilled(size: number): Run {
  return async (store, count, measured) => {
    await fill(count, store.enqueueAll)
    return measured(() => consumeAll(store.consume, size, count, () => 1))
  }
}

function consumeFilledInBatches(size: number): Run {
  return async (store, count, measured) => {
    const { consumeBatches } = store
    if (consumeBatches === undefined) throw new Error('a store without batches')
    await fill(count, store.enqueueAll)
    return measured(() => consumeAll(consumeBatches, size, count, (batch) => batch.length))
  }
}
