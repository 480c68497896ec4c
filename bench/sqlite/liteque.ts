/** liteque: a claim and a settlement per job; a claim reads and sorts all that is queued. */
import type { Payload } from '../messages.js'
import { importPeer } from '../peers.js'
import { POLL_MS, type Product } from './store.js'

/** What the bench uses of it. */
interface Liteque {
  buildDBClient(path: string, options: { runMigrations: boolean }): LiteDatabase
  SqliteQueue: new (
    name: string,
    database: LiteDatabase,
    options: { defaultJobArgs: { numRetries: number }; keepFailedJobs: boolean },
  ) => LiteQueue
  Runner: new (
    queue: LiteQueue,
    functions: { run(job: { data: Payload }): Promise<void> },
    options: { pollIntervalMs: number; timeoutSecs: number; concurrency: number },
  ) => { run(): Promise<void>; stop(): void }
}

interface LiteQueue {
  enqueue(payload: Payload): Promise<unknown>
}

interface LiteDatabase {
  readonly session: { readonly client: { pragma(text: string): unknown; close(): void } }
}

/** It starts a timer for each job and never clears it; these do not fire during the bench, which exits over them. */
const TIMEOUT_SECS = 3_600

export async function liteque(): Promise<Product | undefined> {
  // It consumes with no newer one: from 11.10 on, a transaction refuses the async function that it gives.
  if ((await importPeer('better-sqlite3')) === undefined) return undefined
  const library = await importPeer<Liteque>('liteque')
  return library && productOf(library)
}

function productOf({ buildDBClient, SqliteQueue, Runner }: Liteque): Product {
  return {
    name: 'liteque',
    most: 300,
    depths: [1_000, 10_000],
    async open(path, durability) {
      const database = buildDBClient(path, { runMigrations: true })
      const { client } = database.session
      // It has just set NORMAL.
      client.pragma(`synchronous = ${durability}`)
      const queue = new SqliteQueue('bench', database, { defaultJobArgs: { numRetries: 5 }, keepFailedJobs: true })
      return {
        enqueue: (payload) => queue.enqueue(payload),
        enqueueAll: (payloads) => Promise.all(payloads.map((payload) => queue.enqueue(payload))),
        async consume(size, handler, signal) {
          const options = { pollIntervalMs: POLL_MS, timeoutSecs: TIMEOUT_SECS, concurrency: size }
          const runner = new Runner(queue, { run: ({ data }) => handler(data) }, options)
          signal.addEventListener('abort', () => runner.stop(), { once: true })
          await runner.run()
        },
        close: async () => client.close(),
      }
    },
  }
}
