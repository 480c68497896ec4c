/** Enqueues so many messages, some at a time and some in batches, and says which of them were answered. */
import { Queue } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

export interface Produced {
  readonly ids: readonly string[]
}

const [path = '', name = '', count = '0'] = process.argv.slice(2)
const queue = new Queue<string>('shared', { backend: sqliteBackend(path, { durability: 'normal' }) })
const ids: string[] = []

async function enqueueOne(index: number): Promise<void> {
  const id = `${name}-${index}`
  await queue.enqueue(id, { id })
  ids.push(id)
}

for (let from = 0; from < Number(count); from += 10) {
  if (from % 20 === 0) await Promise.all(Array.from({ length: 10 }, (_, index) => enqueueOne(from + index)))
  else {
    const batch = Array.from({ length: 10 }, (_, index) => `${name}-${from + index}`)
    await queue.enqueueAll(batch.map((id) => ({ payload: id, id })))
    ids.push(...batch)
  }
}
await queue.close()
process.send?.({ ids })
process.disconnect()
