/** How many messages several processes handle together. */
import { fill } from '../messages.js'
import type { Contender, Sample, Scenario } from '../runner.js'
import { scaled, withConnection } from '../trial.js'
import { ChildConsumer } from './child.js'
import type { Server } from './server.js'
import { now, type Product } from './store.js'

interface Crew {
  readonly processes: number
  /** Handlers at once in each. */
  readonly n: number
  readonly messages: number
}

const CREWS: readonly Crew[] = [
  { processes: 1, n: 1, messages: 10_000 },
  { processes: 1, n: 10, messages: 40_000 },
  { processes: 1, n: 100, messages: 80_000 },
  { processes: 2, n: 10, messages: 40_000 },
  { processes: 4, n: 10, messages: 40_000 },
]

/** Here no contender pays for what another has left in its process, unlike where all of them take turns in one. */
export function processScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return CREWS.map((crew) => ({
    title: `processes: ${crew.processes} at work, no-op async handler, n = ${crew.n} in each`,
    baseline: 'millrace',
    contenders: products.map((product) => among(server, product, crew)),
  }))
}

/** The processes stay for all rounds, so that what they run is compiled. */
function among(server: Server, product: Product, crew: Crew): Contender {
  const children: ChildConsumer[] = []
  return {
    name: product.name,
    setUp: async () => {
      for (let index = 0; index < crew.processes; index += 1)
        children.push(await ChildConsumer.start(product, server.address))
    },
    run: async () => {
      await server.clear()
      return share(server, product, crew, children)
    },
    tearDown: async () => {
      await Promise.all(children.map((child) => child.end()))
    },
  }
}

function share(
  server: Server,
  product: Product,
  { n, messages }: Crew,
  children: readonly ChildConsumer[],
): Promise<Sample> {
  const operations = scaled(messages)
  return withConnection(product, server.address, async (connection) => {
    const { enqueueAll } = await connection.open('bench')
    await fill(operations, enqueueAll)
    await Promise.all(children.map((child) => child.open('bench')))
    const began = now()
    for (const child of children) child.consume(n)
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
