/** How soon a message reaches a handler that has nothing else to do, and how soon a consumer is gone. */

import { setTimeout as sleep } from 'node:timers/promises'
import { PAYLOAD } from '../messages.js'
import type { Sample, Scenario } from '../runner.js'
import { scaled, withConnection } from '../trial.js'
import { ChildConsumer } from './child.js'
import type { Server } from './server.js'
import { now, type Product, type Store } from './store.js'

const MESSAGES = 300
/** Between two messages, for the consumer to be done with the first and wait again. */
const PAUSE_MS = 5
const ABORTS = 50
/** For the consumer to begin and find nothing. */
const SETTLE_MS = 20

export function latencyScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return [
    scenario(server, 'latency: from the call to the handler, idle consumer in another process', products, (product) =>
      there(server, product),
    ),
  ]
}

export function abortScenarios(server: Server, products: readonly Product[]): Scenario[] {
  const obeying = products.filter(({ signals }) => signals)
  return [
    scenario(server, 'abort: until an idle consumer has stopped', products, (product) => stopIdle(server, product)),
    scenario(server, 'abort: until a consumer has stopped whose handler ends by its signal', obeying, (product) =>
      stopBusy(server, product),
    ),
  ]
}

function scenario(
  server: Server,
  title: string,
  products: readonly Product[],
  run: (product: Product) => Promise<Sample>,
): Scenario {
  const contenders = products.map((product) => ({
    name: product.name,
    run: async () => {
      await server.clear()
      return run(product)
    },
  }))
  return { title, baseline: 'millrace', rounds: 3, contenders }
}

async function there(server: Server, product: Product): Promise<Sample> {
  const child = await ChildConsumer.start(product, server.address)
  try {
    return await withConnection(product, server.address, async (connection) => {
      const { enqueue } = await connection.open('bench')
      await child.open('bench')
      child.consume(1, true)
      await sleep(10 * SETTLE_MS)
      const latenciesMs: number[] = []
      for (let index = 0; index < scaled(MESSAGES); index += 1) {
        await sleep(PAUSE_MS)
        const arrived = new Promise<number>((resolve) => (child.onProgress = resolve))
        const began = now()
        await enqueue(PAYLOAD)
        latenciesMs.push((await arrived) - began)
      }
      await child.stop()
      return { latenciesMs }
    })
  } finally {
    await child.end()
  }
}

function stopIdle(server: Server, product: Product): Promise<Sample> {
  return stopOften(server, product, async ({ consume }, stop) => {
    const consuming = consume(1, async () => {}, stop.signal)
    await sleep(SETTLE_MS)
    return { consuming }
  })
}

function stopBusy(server: Server, product: Product): Promise<Sample> {
  return stopOften(server, product, async ({ enqueue, consumeAbortably }, stop) => {
    if (consumeAbortably === undefined) throw new Error('a store without signals')
    let begin = () => {}
    const begun = new Promise<void>((resolve) => (begin = resolve))
    const handler = (_: unknown, signal: AbortSignal) =>
      new Promise<void>((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason), { once: true })
        begin()
      })
    await enqueue(PAYLOAD)
    const consuming = consumeAbortably(1, handler, stop.signal).catch(() => {})
    await begun
    await sleep(1)
    return { consuming }
  })
}

/** Stops one consumer after the other. `start` is done when there is something to stop. */
function stopOften(
  server: Server,
  product: Product,
  start: (store: Store, stop: AbortController) => Promise<{ readonly consuming: Promise<unknown> }>,
): Promise<Sample> {
  return withConnection(product, server.address, async (connection) => {
    const store = await connection.open('bench')
    const latenciesMs: number[] = []
    for (let index = 0; index < scaled(ABORTS); index += 1) {
      const stop = new AbortController()
      const { consuming } = await start(store, stop)
      const began = now()
      stop.abort()
      await consuming
      latenciesMs.push(now() - began)
    }
    return { latenciesMs }
  })
}
