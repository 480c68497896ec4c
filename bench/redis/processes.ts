/** How many messages several processes handle together. */
import { fill } from '../messages.js'
import type { Contender, Sample, Scenario } from '../runner.js'
import { scaled, withConnection } from '../trial.js'
import { ChildConsumer } from './child.js'
import type { Server } from './server.js'
import { now, type Product } from './store.js'

const LANES = 10
const MESSAGES = 40_000
const COUNTS = [1, 2, 4]

export function processScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return COUNTS.map((count) => ({
    title: `processes: ${count} at work, no-op async handler, n = ${LANES} in each`,
    baseline: 'millrace',
    contenders: products.map((product) => among(server, product, count)),
  }))
}

/** The processes stay for all rounds, so that what they run is compiled. */
function among(server: Server, product: Product, count: number): Contender {
  const children: ChildConsumer[] = []
  return {
    name: product.name,
    setUp: async () => {
      for (let index = 0; index < count; index += 1) children.push(await ChildConsumer.start(product, server.address))
    },
    run: async () => {
      await server.clear()
      return share(server, product, children)
    },
    tearDown: async () => {
      await Promise.all(children.map((child) => child.end()))
    },
  }
}

function share(server: Server, product: Product, children: readonly ChildConsumer[]): Promise<Sample> {
  const operations = scaled(MESSAGES)
  return withConnection(product, server.address, async (connection) => {
    const { enqueueAll } = await connection.open('bench')
    await fill(operations, enqueueAll)
    await Promise.all(children.map((child) => child.open('bench')))
    const began = now()
    for (const child of children) child.consume(LANES)
    await new Promise<void>((resolve) => {
      const look = () => {
        if (children.reduce((sum, child) => sum + child.handled, 0) >= operations) resolve()
      }
      for (const child of children) child.onProgress = look
    })
    const ends = await Promise.all(children.map((child) => child.stop()))
    return { operations, elapsedMs: Math.max(...ends) - began }
  })
}
