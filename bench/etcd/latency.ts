/** How soon a message reaches a handler that has nothing else to do. Producer and consumer have a client each. */
import { setTimeout as sleep } from 'node:timers/promises'
import { PAYLOAD } from '../messages.js'
import type { Sample, Scenario } from '../runner.js'
import { scaled, withConnection } from '../trial.js'
import { RawWatch } from './raw.js'
import type { Server } from './server.js'
import type { Product } from './store.js'

const MESSAGES = 300
/** Between two messages, for the consumer to be done with the first and wait again. */
const PAUSE_MS = 10
/** For the consumer to begin and find nothing. */
const SETTLE_MS = 500

export function latencyScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return [
    {
      title: 'latency: from the call to the handler, idle consumer',
      baseline: 'watch and transaction',
      contenders: [
        { name: 'watch and transaction', run: () => cleared(server, () => rawLatency(server)) },
        ...products.map((product) => ({
          name: product.name,
          run: () => cleared(server, () => latency(server, product)),
        })),
      ],
    },
  ]
}

async function cleared(server: Server, run: () => Promise<Sample>): Promise<Sample> {
  await server.clear()
  return run()
}

async function rawLatency(server: Server): Promise<Sample> {
  const raw = new RawWatch(server.url)
  const arrivals = new Arrivals()
  const end = await raw.consume(() => arrivals.note())
  const sample = await measure(arrivals, (index) => raw.enqueue(index))
  await end()
  raw.close()
  return sample
}

function latency(server: Server, product: Product): Promise<Sample> {
  return withConnection(product, server.url, async (producer) =>
    withConnection(product, server.url, async (consumer) => {
      const target = await producer.open('bench')
      const arrivals = new Arrivals()
      const stop = new AbortController()
      const store = await consumer.open('bench')
      const consuming = store.consume(1, async () => arrivals.note(), stop.signal)
      const sample = await measure(arrivals, () => target.enqueue(PAYLOAD))
      stop.abort()
      await consuming
      return sample
    }),
  )
}

async function measure(arrivals: Arrivals, enqueue: (index: number) => Promise<unknown>): Promise<Sample> {
  await sleep(SETTLE_MS)
  const latenciesMs: number[] = []
  for (let index = 0; index < scaled(MESSAGES); index += 1) {
    await sleep(PAUSE_MS)
    const arrived = arrivals.next()
    const began = performance.now()
    const enqueued = enqueue(index)
    latenciesMs.push((await arrived) - began)
    await enqueued
  }
  return { latenciesMs }
}

class Arrivals {
  #note = (_: number) => {}

  next(): Promise<number> {
    return new Promise((resolve) => {
      this.#note = resolve
    })
  }

  note(): void {
    this.#note(performance.now())
  }
}
