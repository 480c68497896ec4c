import { Queue } from 'millrace'
import { etcdBackend } from 'millrace/etcd'
import type { Payload } from '../messages.js'
import { storeOf } from '../millrace.js'
import { LEASE_MS, type Product } from './store.js'

export const millrace: Product = {
  name: 'millrace',
  async connect(url) {
    const backend = etcdBackend({ hosts: url })
    return {
      async open(name) {
        const queue = new Queue<Payload>(name, { backend, leaseMs: LEASE_MS })
        // Connects, which is nothing to measure.
        await queue.size()
        return storeOf(queue)
      },
      close: async () => backend.close(),
    }
  },
}
