/** How many messages get in, and how many get handled, in a second. */
import { consumeAll, fill, PAYLOAD, type Payload } from '../messages.js'
import { type Sample, type Scenario, timed } from '../runner.js'
import { byHandFused, byHandGrouped } from './by-hand.js'
import { type Durability, type Product, type Store, withStore } from './store.js'

const BATCH = 100
const AT_ONCE = 1_000

/** One run of `count` messages on a store that is new. */
type Run = (store: Store, count: number) => Promise<Sample>

export function enqueueScenarios(products: readonly Product[], durability: Durability): Scenario[] {
  return [
    scenario(`${durability}: enqueue, each awaited`, products, durability, 2_000, enqueueOneByOne),
    scenario(`${durability}: enqueue, batches of ${BATCH}`, products, durability, 20_000, enqueueBatches),
    scenario(
      `${durability}: enqueue, ${AT_ONCE} asked for at once`,
      [...products, byHandGrouped],
      durability,
      10_000,
      enqueueAtOnce,
    ),
  ]
}

export function claimScenarios(products: readonly Product[], durability: Durability): Scenario[] {
  const batching = products.filter(({ batches }) => batches)
  const all = [...products, byHandFused]
  const one = (title: string, own: readonly Product[], count: number, run: Run) =>
    scenario(`${durability}: claim and ack, no-op async handler, ${title}`, own, durability, count, run)
  return [
    one('n = 1', all, 2_000, consumeFilled(1)),
    one('n = 10', all, 10_000, consumeFilled(10)),
    one('n = 100', all, 20_000, consumeFilled(100)),
    one(`batches of ${BATCH}`, batching, 20_000, consumeFilledInBatches),
  ]
}

function scenario(title: string, products: readonly Product[], durability: Durability, count: number, run: Run) {
  const contenders = products.map((product) => ({
    name: product.name,
    run: () => withStore(product, durability, (store) => run(store, Math.min(count, product.most ?? count))),
  }))
  return { title, baseline: 'millrace', contenders }
}

function enqueueOneByOne({ enqueue }: Store, count: number): Promise<Sample> {
  return timed(count, async () => {
    for (let index = 0; index < count; index += 1) await enqueue(PAYLOAD)
  })
}

function enqueueBatches({ enqueueAll }: Store, count: number): Promise<Sample> {
  const payloads = new Array<Payload>(BATCH).fill(PAYLOAD)
  return timed(count, async () => {
    for (let index = 0; index < count; index += BATCH) await enqueueAll(payloads)
  })
}

function enqueueAtOnce({ enqueue }: Store, count: number): Promise<Sample> {
  return timed(count, async () => {
    for (let index = 0; index < count; index += AT_ONCE) {
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - index) }, () => enqueue(PAYLOAD)))
    }
  })
}

function consumeFilled(size: number): Run {
  return async (store, count) => {
    await fill(count, store.enqueueAll)
    return timed(count, () => consumeAll(store.consume, size, count, () => 1))
  }
}

async function consumeFilledInBatches(store: Store, count: number): Promise<Sample> {
  const { consumeBatches } = store
  if (consumeBatches === undefined) throw new Error('a store without batches')
  await fill(count, store.enqueueAll)
  return timed(count, () => consumeAll(consumeBatches, BATCH, count, (batch) => batch.length))
}
