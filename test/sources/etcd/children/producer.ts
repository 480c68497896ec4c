/** A producer in a process of its own: enqueues what it is told to, and says so. `producer.ts URL QUEUE CLOCK_OFF_MS` */
import { offMs } from './clock.js'

// First, since whatever looks at the clock as it is loaded is to see the wrong one.

import { type Entry, Queue } from 'millrace'
import { etcdBackend } from 'millrace/etcd'

export type Told =
  | { readonly ready: true; readonly now: number; readonly offMs: number }
  | { readonly enqueued: number }

const [, , hosts = '', name = ''] = process.argv
const say = (told: Told) => process.send?.(told)
const queue = new Queue<string>(name, { backend: etcdBackend({ hosts }) })
let count = 0

process.on('message', async (entries: Entry<string>[]) => {
  await queue.enqueueAll(entries)
  count += 1
  say({ enqueued: count })
})
process.once('disconnect', () => void queue.close())
await queue.size()
say({ ready: true, now: Date.now(), offMs })
