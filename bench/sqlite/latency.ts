/** How soon a message that is enqueued reaches a handler that has nothing else to do. */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { PAYLOAD } from '../messages.js'
import type { Sample, Scenario } from '../runner.js'
import { type Durability, type Product, type Store, type TemporaryStore, withStore } from './store.js'

const MESSAGES = 200
/** Between two messages, for the consumer to be done with the first and wait again. */
const PAUSE_MS = 5

export function latencyScenarios(products: readonly Product[], durability: Durability): Scenario[] {
  const scenario = (where: string, run: (product: Product) => Promise<Sample>): Scenario => ({
    title: `${durability}: latency, from the call to the handler, idle consumer in ${where}`,
    baseline: 'millrace',
    rounds: 3,
    contenders: products.map((product) => ({ name: product.name, run: () => run(product) })),
  })
  return [
    scenario('the same process', (product) => withStore(product, durability, here)),
    scenario('another process', (product) =>
      withStore(product, durability, (store) => there(product, durability, store)),
    ),
  ]
}

async function here(store: Store): Promise<Sample> {
  const stop = new AbortController()
  let arrive: (at: number) => void = () => {}
  const consuming = store.consume(1, async () => arrive(now()), stop.signal)
  const sample = await send(store, () => new Promise<number>((resolve) => (arrive = resolve)))
  stop.abort()
  await consuming
  return sample
}

async function there(product: Product, durability: Durability, store: TemporaryStore): Promise<Sample> {
  const script = fileURLToPath(new URL('../sqlite-consumer.ts', import.meta.url))
  const child = fork(script, [product.name, store.path, durability])
  try {
    await messageOf(child)
    return await send(store, () => messageOf(child))
  } finally {
    // It ends by itself then, and closes the file.
    if (child.connected) child.disconnect()
    if (child.exitCode === null) await once(child, 'exit')
  }
}

/** Sends messages one by one; `arrival` tells when the next one is handled. */
async function send({ enqueue }: Store, arrival: () => Promise<number>): Promise<Sample> {
  const latenciesMs: number[] = []
  for (let index = 0; index < MESSAGES; index += 1) {
    await sleep(PAUSE_MS)
    const arrived = arrival()
    const began = now()
    await enqueue(PAYLOAD)
    latenciesMs.push((await arrived) - began)
  }
  return { latenciesMs }
}

async function messageOf(child: ChildProcess): Promise<number> {
  const done = new AbortController()
  const ended = once(child, 'exit', { signal: done.signal }).then(() => {
    throw new Error('the consumer process ended')
  })
  try {
    const [message] = await Promise.race([once(child, 'message', { signal: done.signal }), ended])
    return message
  } finally {
    done.abort()
  }
}

/** Milliseconds of a clock that the processes of a machine share. */
export function now(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
