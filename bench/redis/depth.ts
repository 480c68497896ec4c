/** What a message costs when many others are there. */
import { fill, PAYLOAD, replaceAll } from '../messages.js'
import { type Contender, type Sample, type Scenario, timed } from '../runner.js'
import { scaled } from '../trial.js'
import { costOf, type Server } from './server.js'
import { type Connection, now, type Product, type Store } from './store.js'

const MESSAGES = 20_000
const LANES = 100
const CLAIMS = 2_000
const FEW = 1_000
const MANY = 1_000_000

/** How many messages are there that nobody takes away. */
interface Depth {
  readonly ready: number
  readonly delayed?: number
}

const READY: readonly Depth[] = [{ ready: FEW }, { ready: 100 * FEW }, { ready: MANY }]
const DELAYED: Depth = { ready: FEW, delayed: MANY }

/** A scenario for each product, against itself at the smallest depth. */
export function depthScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return products.map((product) => {
    const depths = product.delays ? [...READY, DELAYED] : READY
    return {
      title: `depth: ${product.name}, ${scaled(MESSAGES)} messages handled and put in anew, n = ${LANES}; ms of a single claim`,
      baseline: nameOf(depths[0]),
      contenders: depths.map((depth) => atDepth(server, product, depth)),
    }
  })
}

function nameOf({ ready, delayed }: Depth = { ready: FEW }): string {
  return delayed === undefined ? `${scaled(ready)} ready` : `${scaled(ready)} ready, ${scaled(delayed)} delayed`
}

/** Each has a queue of its own, on one server. */
function atDepth(server: Server, product: Product, depth: Depth): Contender {
  let connection: Connection | undefined
  let store: Store | undefined
  return {
    name: nameOf(depth),
    setUp: async () => {
      connection = await product.connect(server.address)
      store = await connection.open(`bench-${nameOf(depth).replaceAll(/\W+/g, '-')}`)
      await fill(scaled(depth.ready), store.enqueueAll)
      if (store.delayAll) await fill(scaled(depth.delayed ?? 0), store.delayAll)
    },
    run: async () => {
      if (store === undefined) throw new Error('not set up')
      return measureAt(store, server)
    },
    tearDown: async () => {
      await connection?.close()
      await server.clear()
    },
  }
}

async function measureAt(store: Store, server: Server): Promise<Sample> {
  const count = scaled(MESSAGES)
  const [sample, amounts] = await costOf(server, count, () => timed(count, () => replaceAll(store, LANES, count)))
  const latenciesMs = await claimOnes(store, scaled(CLAIMS))
  return { ...sample, amounts, ...(latenciesMs && { latenciesMs }) }
}

async function claimOnes({ claim, enqueue }: Store, count: number): Promise<number[] | undefined> {
  if (claim === undefined) return undefined
  const latenciesMs: number[] = []
  for (let index = 0; index < count; index += 1) {
    const began = now()
    const ack = await claim()
    latenciesMs.push(now() - began)
    await ack()
    await enqueue(PAYLOAD)
  }
  return latenciesMs
}
