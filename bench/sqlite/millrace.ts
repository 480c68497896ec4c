import { Queue } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'
import type { Payload } from '../messages.js'
import { storeOf } from '../millrace.js'
import type { Product } from './store.js'

export const millrace: Product = {
  name: 'millrace',
  batches: true,
  async open(path, durability) {
    const backend = sqliteBackend(path, { durability })
    const queue = new Queue<Payload>('bench', { backend })
    // Opens the file, which is nothing to measure.
    await queue.size()
    return { ...storeOf(queue), close: async () => backend.close() }
  },
}
