/** What consumers cost that wait. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sample, Scenario } from '../runner.js'
import { scaled, withConnection } from '../trial.js'
import { cpuUsOf, numberIn } from './info.js'
import type { Server } from './server.js'
import type { Product } from './store.js'

const WINDOW_MS = 10_000
/** For all consumers to have begun. */
const SETTLE_MS = 2_000
const COUNTS = [1, 100]

export function idleScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return COUNTS.map((count) => ({
    title: `idle: ${count === 1 ? 'one queue' : `${count} queues`}, a consumer of each`,
    baseline: 'millrace',
    rounds: 1,
    contenders: products.map((product) => ({
      name: product.name,
      run: async () => {
        await server.clear()
        return wait(server, product, count)
      },
    })),
  }))
}

function wait(server: Server, product: Product, count: number): Promise<Sample> {
  return withConnection(product, server.address, async (connection) => {
    const stops: AbortController[] = []
    const consuming: Promise<unknown>[] = []
    for (let index = 0; index < count; index += 1) {
      const { consume } = await connection.open(`bench-${index}`)
      const stop = new AbortController()
      stops.push(stop)
      consuming.push(consume(1, async () => {}, stop.signal))
    }
    await sleep(SETTLE_MS)
    const sample = await watch(server)
    for (const stop of stops) stop.abort()
    await Promise.all(consuming)
    return sample
  })
}

async function watch(server: Server): Promise<Sample> {
  const windowMs = scaled(WINDOW_MS)
  const before = await server.info()
  const own = process.cpuUsage()
  await sleep(windowMs)
  const { user, system } = process.cpuUsage(own)
  const after = await server.info()
  // The first INFO has not counted itself, and the second counts it.
  const commands = numberIn(after, 'total_commands_processed') - numberIn(before, 'total_commands_processed') - 1
  return {
    amounts: {
      'commands/s (those in scripts too)': (commands * 1000) / windowMs,
      'server CPU µs per s': ((cpuUsOf(after) - cpuUsOf(before)) * 1000) / windowMs,
      'client CPU µs per s': ((user + system) * 1000) / windowMs,
      connections: numberIn(after, 'connected_clients') - 1,
    },
  }
}
