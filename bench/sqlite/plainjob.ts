/** plainjob: synchronous calls, one job at a time per worker, finished jobs stay in their table for a week. */

import Database from 'better-sqlite3'
import type { Payload } from '../messages.js'
import { importPeer } from '../peers.js'
import { POLL_MS, type Product } from './store.js'

/** What the bench uses of it. */
interface Plainjob {
  better(database: Database.Database): unknown
  defineQueue(options: { connection: unknown; logger: unknown }): PlainQueue
  defineWorker(
    type: string,
    process: (job: { data: string }) => Promise<void>,
    options: { queue: PlainQueue; logger: unknown; pollIntervall: number },
  ): { start(): Promise<void>; stop(): Promise<void> }
}

interface PlainQueue {
  add(type: string, data: unknown): unknown
  addMany(type: string, data: readonly unknown[]): unknown
  close(): void
}

const TYPE = 'bench'
const ignore = () => {}
const silent = { error: console.error, warn: ignore, info: ignore, debug: ignore }

export async function plainjob(): Promise<Product | undefined> {
  const library = await importPeer<Plainjob>('plainjob')
  return library && productOf(library)
}

function productOf({ better, defineQueue, defineWorker }: Plainjob): Product {
  return {
    name: 'plainjob',
    most: 2_000,
    async open(path, durability) {
      const database = new Database(path)
      const queue = defineQueue({ connection: better(database), logger: silent })
      // It has just set NORMAL.
      database.pragma(`synchronous = ${durability}`)
      const workerOf = (handler: (payload: Payload) => Promise<void>) =>
        defineWorker(TYPE, ({ data }) => handler(JSON.parse(data)), { queue, logger: silent, pollIntervall: POLL_MS })
      return {
        enqueue: async (payload) => queue.add(TYPE, payload),
        enqueueAll: async (payloads) => queue.addMany(TYPE, payloads),
        async consume(size, handler, signal) {
          const workers = Array.from({ length: size }, () => workerOf(handler))
          const stop = () => Promise.all(workers.map((worker) => worker.stop()))
          signal.addEventListener('abort', () => void stop(), { once: true })
          await Promise.all(workers.map((worker) => worker.start()))
        },
        close: async () => queue.close(),
      }
    },
  }
}
