/** What a message costs when many others are queued. */
import { fill, replaceAll } from '../messages.js'
import { type Contender, type Scenario, timed } from '../runner.js'
import { type Durability, type Product, type Store, temporaryStore } from './store.js'

const MESSAGES = 5_000
const LANES = 10
const DEPTHS = [1_000, 100_000, 1_000_000]

/** A scenario for each product, against itself at the smallest depth. */
export function depthScenarios(products: readonly Product[], durability: Durability): Scenario[] {
  return products.map((product) => {
    const { depths = DEPTHS, name, most = MESSAGES } = product
    const count = Math.min(MESSAGES, most)
    return {
      title: `${durability}: depth, ${name}, ${count} messages handled and put in anew, n = ${LANES}`,
      baseline: nameOf(depths[0]),
      contenders: depths.map((depth) => atDepth(product, durability, depth, count)),
    }
  })
}

function nameOf(depth: number | undefined): string {
  return `${depth} queued`
}

/** Works on messages of a queue that holds `depth` others all the while. */
function atDepth(product: Product, durability: Durability, depth: number, count: number): Contender {
  let store: Store | undefined
  return {
    name: nameOf(depth),
    setUp: async () => {
      store = await temporaryStore(product, durability)
      await fill(depth, store.enqueueAll)
    },
    run: () => timed(count, async () => store && replaceAll(store, LANES, count)),
    tearDown: async () => {
      await store?.close()
    },
  }
}
