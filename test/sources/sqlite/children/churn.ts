/**
 * Does everything that a consumer and a producer do, at random, until it is killed. Before each request it notes what
 * it asks for, and afterwards what was answered, in a file: what is written there survives it.
 */
import { openSync, writeSync } from 'node:fs'
import { type Delivery, Queue } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

/** `asked` comes before `answered`; a request of which there is only the first is one whose end nobody knows. */
export type Note =
  | { readonly kind: 'enqueue'; readonly ids: readonly string[]; readonly answered: boolean }
  | {
      readonly kind: 'delivery'
      readonly id: string
      readonly fence: number
      readonly at: number
      readonly until: number
    }
  | { readonly kind: Way; readonly id: string; readonly fence: number; readonly answer?: string }

type Way = 'ack' | 'requeue' | 'bury' | 'release'

const [path = '', log = '', name = ''] = process.argv.slice(2)
const file = openSync(log, 'a')
const note = (noted: Note) => writeSync(file, `${JSON.stringify(noted)}\n`)

const queue = new Queue<string>('churn', {
  backend: sqliteBackend(path, { durability: 'normal' }),
  leaseMs: 250,
  maxDeliveries: 1_000,
})
let count = 0

async function enqueueSome(): Promise<void> {
  const ids = Array.from({ length: 1 + Math.floor(Math.random() * 4) }, () => `${name}-${++count}`)
  note({ kind: 'enqueue', ids, answered: false })
  const delayMs = Math.random() < 0.3 ? Math.random() * 100 : 0
  await queue.enqueueAll(ids.map((id) => ({ payload: id, id, delayMs, priority: Math.floor(Math.random() * 3) })))
  note({ kind: 'enqueue', ids, answered: true })
}

const WAYS: Readonly<Record<Way, (delivery: Delivery<string>) => Promise<string>>> = {
  ack: (delivery) => delivery.ack('done'),
  requeue: (delivery) => delivery.requeue({ delayMs: Math.random() < 0.5 ? 0 : 40 }),
  bury: (delivery) => delivery.deadLetter('at random'),
  release: (delivery) => delivery.release(),
}

async function settleOne(): Promise<void> {
  const delivery = await queue.tryReceive()
  if (delivery === undefined) return
  const { id, fence } = delivery
  note({ kind: 'delivery', id, fence, at: Date.now(), until: delivery.leaseExpiresAt })
  const chance = Math.random()
  const kind: Way = chance < 0.6 ? 'ack' : chance < 0.8 ? 'requeue' : chance < 0.9 ? 'bury' : 'release'
  note({ kind, id, fence })
  note({ kind, id, fence, answer: await WAYS[kind](delivery) })
}

/** Enough to be killed in the middle of. */
async function lane(): Promise<void> {
  for (let step = 0; step < 60; step += 1) {
    if (Math.random() < 0.4) await enqueueSome()
    else await settleOne()
  }
}

process.on('disconnect', () => process.exit())
await enqueueSome()
process.send?.('working')
await Promise.all([lane(), lane(), lane(), lane()])
