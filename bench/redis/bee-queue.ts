/** bee-queue: no events, nothing kept of finished jobs; it looks for stalled ones as its guide tells. */
import type { Payload } from '../messages.js'
import { importPeer } from '../peers.js'
import type { Address, Product } from './store.js'

/** What the bench uses of it. */
interface BeeModule {
  default: new (name: string, settings: BeeSettings) => BeeQueue
}

interface BeeSettings {
  redis: Address
  isWorker: boolean
  getEvents: boolean
  sendEvents: boolean
  storeJobs: boolean
  removeOnSuccess: boolean
  removeOnFailure: boolean
}

interface BeeQueue {
  ready(): Promise<unknown>
  createJob(data: Payload): { save(): Promise<unknown> }
  saveAll(jobs: readonly object[]): Promise<unknown>
  process(concurrency: number, handler: (job: { data: Payload }) => Promise<void>): void
  checkStalledJobs(intervalMs: number): Promise<unknown>
  close(timeoutMs?: number): Promise<void>
  on(event: 'error', listener: () => void): void
}

const STALLED_MS = 5_000

export async function beeQueue(): Promise<Product | undefined> {
  const library = await importPeer<BeeModule>('bee-queue')
  return library && productOf(library.default)
}

function productOf(Queue: BeeModule['default']): Product {
  return {
    name: 'bee-queue',
    async connect(redis) {
      const settings = {
        redis,
        getEvents: false,
        sendEvents: false,
        storeJobs: false,
        removeOnSuccess: true,
        removeOnFailure: true,
      }
      const queues: BeeQueue[] = []
      return {
        async open(name) {
          const queue = new Queue(name, { ...settings, isWorker: false })
          queues.push(queue)
          await queue.ready()
          return {
            enqueue: (payload) => queue.createJob(payload).save(),
            enqueueAll: (payloads) => queue.saveAll(payloads.map((payload) => queue.createJob(payload))),
            async consume(size, handler, signal) {
              const worker = new Queue(name, { ...settings, isWorker: true })
              worker.on('error', () => {})
              await worker.ready()
              await worker.checkStalledJobs(STALLED_MS)
              worker.process(size, ({ data }) => handler(data))
              await new Promise<void>((resolve, reject) => {
                const stop = () => worker.close().then(resolve, reject)
                if (signal.aborted) void stop()
                else signal.addEventListener('abort', () => void stop(), { once: true })
              })
            },
          }
        },
        close: () => Promise.all(queues.map((queue) => queue.close())),
      }
    },
  }
}
