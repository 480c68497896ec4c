/** Consumes what its number says, in a thread or in a process, and says what it had. */
import { parentPort, workerData } from 'node:worker_threads'
import { Queue } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

export interface Worked {
  readonly ids: readonly string[]
}

const path: string = workerData?.path ?? process.argv[2]
const queue = new Queue<string>('shared', { backend: sqliteBackend(path, { durability: 'normal' }) })
const say = (said: Worked | 'started') => (parentPort ? parentPort.postMessage(said) : process.send?.(said))

await queue.stats()
say('started')
const ids: string[] = []
for await (const delivery of queue.source()) {
  if (delivery.payload === 'end') break
  ids.push(delivery.payload)
  await delivery.ack()
}
await queue.close()
say({ ids })
if (parentPort === null) process.disconnect()
