/** What a message occupies on the server, and a worker after many of them. */
import { fill } from '../messages.js'
import type { Sample, Scenario } from '../runner.js'
import { scaled, withConnection } from '../trial.js'
import { ChildConsumer } from './child.js'
import { numberIn } from './info.js'
import type { Server } from './server.js'
import type { Product, Store } from './store.js'

const READY = 100_000
const HANDLED = 200_000
/** What is enqueued before the worker is done with what came before. */
const WAVE = 20_000
const LANES = 100

export function memoryScenarios(server: Server, products: readonly Product[]): Scenario[] {
  const scenario = (title: string, run: (product: Product) => Promise<Sample>): Scenario => ({
    title: `memory: ${title}`,
    baseline: 'millrace',
    rounds: 1,
    contenders: products.map((product) => ({
      name: product.name,
      run: async () => {
        await server.clear()
        return run(product)
      },
    })),
  })
  return [
    scenario(`the server, ${scaled(READY)} messages ready`, (product) => occupy(server, product)),
    scenario(`a worker, ${scaled(HANDLED)} messages handled`, (product) => work(server, product)),
  ]
}

function occupy(server: Server, product: Product): Promise<Sample> {
  const count = scaled(READY)
  return withConnection(product, server.address, async (connection) => {
    const { enqueueAll } = await connection.open('bench')
    const before = await server.info()
    await fill(count, enqueueAll)
    const after = await server.info()
    const bytes = numberIn(after, 'used_memory') - numberIn(before, 'used_memory')
    return { amounts: { 'bytes per message': bytes / count } }
  })
}

async function work(server: Server, product: Product): Promise<Sample> {
  const child = await ChildConsumer.start(product, server.address)
  try {
    return await withConnection(product, server.address, async (connection) => {
      const store = await connection.open('bench')
      const { used_memory: idle } = await usedBy(server)
      await child.open('bench')
      child.consume(LANES)
      await feed(store, child, scaled(HANDLED))
      const { rss, heap } = await child.memory()
      const { used_memory: used } = await usedBy(server)
      await child.stop()
      const MiB = 2 ** 20
      return {
        amounts: { 'RSS MiB': rss / MiB, 'heap MiB': heap / MiB, 'left on the server MiB': (used - idle) / MiB },
      }
    })
  } finally {
    await child.end()
  }
}

async function usedBy(server: Server): Promise<{ used_memory: number }> {
  return { used_memory: numberIn(await server.info(), 'used_memory') }
}

/** Never so many at once that the server would be what is measured. */
async function feed({ enqueueAll }: Store, child: ChildConsumer, count: number): Promise<void> {
  let fed = 0
  while (fed < count) {
    const wave = Math.min(WAVE, count - fed)
    await fill(wave, enqueueAll)
    fed += wave
    await new Promise<void>((resolve) => {
      const look = () => {
        if (child.handled >= fed) resolve()
      }
      child.onProgress = look
      look()
    })
  }
}
