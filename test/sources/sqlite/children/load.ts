/** Works on a deep queue, and says how long the event loop was kept from turning. */
import { Queue, type QueueStats } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

export interface Loaded {
  readonly handled: number
  /** Milliseconds between two turns of the loop, in order. */
  readonly gaps: readonly number[]
  readonly stats: QueueStats
}

const [path = '', ms = '0'] = process.argv.slice(2)
const queue = new Queue<string>('deep', { backend: sqliteBackend(path, { durability: 'normal' }) })
const source = queue.source({ credit: 64 })
await queue.stats()

const gaps: number[] = []
let handled = 0
let last = performance.now()
const endsAt = last + Number(ms)
let running = true

function turn(): void {
  const now = performance.now()
  gaps.push(now - last)
  last = now
  if (now < endsAt) setImmediate(turn)
  else running = false
}
setImmediate(turn)

source.subscribe((delivery) => {
  handled += 1
  void delivery.ack()
})
while (running) await queue.enqueue('another')
await source.stop()
process.send?.({ handled, gaps: gaps.sort((a, b) => a - b), stats: await queue.stats() })
await queue.close()
process.disconnect()
