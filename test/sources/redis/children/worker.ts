/**
 * A worker in a process of its own: `worker.ts URL handle|hold|exit`. It tells each id that it begins with, and goes on
 * until it is told to stop; `hold` never ends a handler, `exit` ends the process with the first.
 */
import { mergeMap, pipe, Queue, type Released, run } from 'millrace'
import { redisBackend } from 'millrace/redis'

export interface Told {
  readonly ready?: true
  readonly id?: string
  readonly attempt?: number
  readonly released?: Released
}

const [, , url = '', what = 'handle'] = process.argv
const say = (told: Told) => process.send?.(told)
const queue = new Queue<string>('shared', { backend: redisBackend(url), leaseMs: 600, maxDeliveries: 3 })
const stop = new AbortController()
process.once('message', () => stop.abort())
await queue.size()
say({ ready: true })

const released = await run(
  pipe(
    queue.source(),
    mergeMap(async ({ id, attempt }) => {
      say({ id, attempt })
      if (what === 'exit') process.exit(1)
      if (what === 'hold') await new Promise(() => {})
    }, 5),
  ),
  { signal: stop.signal },
)
say({ released })
await queue.close()
process.disconnect()
