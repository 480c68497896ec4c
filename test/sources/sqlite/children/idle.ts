/** Waits for messages of a queue, says when each came, and what waiting costs. */
import { Queue } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

export type Idle =
  | { readonly kind: 'waiting' }
  | { readonly kind: 'came'; readonly payload: string; readonly at: number }
  /** The share of one core that was used. */
  | { readonly kind: 'cost'; readonly cpu: number }

const [path = ''] = process.argv.slice(2)
const queue = new Queue<string>('idle', { backend: sqliteBackend(path, { durability: 'normal' }) })
const say = (said: Idle) => process.send?.(said)

/** Measures for so many milliseconds. */
process.on('message', (ms: number) => {
  const before = process.cpuUsage()
  const began = performance.now()
  setTimeout(() => {
    const { user, system } = process.cpuUsage(before)
    say({ kind: 'cost', cpu: (user + system) / 1_000 / (performance.now() - began) })
  }, ms)
})

process.on('disconnect', () => process.exit())
await queue.stats()
say({ kind: 'waiting' })
for await (const delivery of queue.source()) {
  say({ kind: 'came', payload: delivery.payload, at: Date.now() })
  await delivery.ack()
}
