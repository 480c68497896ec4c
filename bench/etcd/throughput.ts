/** How many messages get in, and how many get handled, in a second. */
import { consumeAll, fill, PAYLOAD } from '../messages.js'
import { type Contender, type Sample, type Scenario, timed } from '../runner.js'
import { scaled, withConnection } from '../trial.js'
import { Raw } from './raw.js'
import type { Server } from './server.js'
import { BATCH, type Product, type Store } from './store.js'

const CEILING = 'transactions that stand for nothing'
const BASELINE = 'one transaction per message'

interface Size {
  /** Handlers, or calls, at once. */
  readonly n: number
  readonly messages: number
}

/** What is over within less than a second or two is measured while it is still being compiled. */
const SIZES: readonly Size[] = [
  { n: 1, messages: 2_000 },
  { n: 10, messages: 6_000 },
  { n: 100, messages: 12_000 },
]

export function enqueueScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return SIZES.map(({ n, messages }) => ({
    title: `enqueue: ${n} asked for at once`,
    baseline: BASELINE,
    contenders: [
      ...products.map((product) => measured(server, product, messages, (store, count) => enqueue(store, count, n))),
      ceiling(server, messages, n, 1),
    ],
  }))
}

export function claimScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return SIZES.map(({ n, messages }) => ({
    title: `claim: claim and ack, no-op async handler, n = ${n}`,
    baseline: BASELINE,
    contenders: [
      ...products.map((product) => measured(server, product, messages, (store, count) => consume(store, count, n))),
      ceiling(server, messages, n, 2),
    ],
  }))
}

function measured(
  server: Server,
  product: Product,
  messages: number,
  run: (store: Store, count: number) => Promise<Sample>,
): Contender {
  return {
    name: product.name,
    run: async () => {
      await server.clear()
      return withConnection(product, server.url, async (connection) =>
        run(await connection.open('bench'), scaled(messages)),
      )
    },
  }
}

/** As many transactions for each message as the recipe makes, without what it reads. */
function ceiling(server: Server, messages: number, atOnce: number, perMessage: number): Contender {
  return {
    name: CEILING,
    run: async () => {
      await server.clear()
      const raw = new Raw(server.url)
      const count = scaled(messages)
      // Connects, which is nothing to measure.
      await raw.transact(1, 1)
      const sample = await timed(count, () => raw.transact(count * perMessage, atOnce))
      raw.close()
      return sample
    },
  }
}

function enqueue(store: Store, count: number, atOnce: number): Promise<Sample> {
  return timed(count, async () => {
    let left = count
    const lane = async () => {
      while (left > 0) {
        left -= 1
        await store.enqueue(PAYLOAD)
      }
    }
    await Promise.all(Array.from({ length: atOnce }, lane))
  })
}

async function consume(store: Store, count: number, size: number): Promise<Sample> {
  await fill(count, (payloads) => store.enqueueAll(payloads), BATCH)
  return timed(count, () => consumeAll(store.consume, size, count, () => 1))
}
