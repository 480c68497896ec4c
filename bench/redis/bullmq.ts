/** BullMQ: finished jobs are removed, all else as it comes. */
import type { Consume, Payload } from '../messages.js'
import { importPeer } from '../peers.js'
import { type Address, LEASE_MS, type Product } from './store.js'

/** What the bench uses of it. */
interface Bullmq {
  Queue: new (name: string, options: { connection: Address; defaultJobOptions: object }) => BullQueue
  Worker: new (
    name: string,
    process: Process,
    options: { connection: Address; concurrency: number; autorun: boolean; lockDuration: number },
  ) => BullWorker
}

/** Gets a signal if it declares three parameters. */
type Process = (job: { data: Payload }, token: string, signal: AbortSignal) => Promise<void>

interface BullQueue {
  waitUntilReady(): Promise<unknown>
  add(name: string, data: Payload): Promise<unknown>
  addBulk(jobs: readonly { name: string; data: Payload; opts?: object }[]): Promise<unknown>
  close(): Promise<void>
}

interface BullWorker {
  on(event: 'error', listener: () => void): void
  waitUntilReady(): Promise<unknown>
  run(): Promise<void>
  cancelAllJobs(): void
  close(): Promise<void>
}

const JOB = 'bench'
const HOUR_MS = 3_600_000

export async function bullmq(): Promise<Product | undefined> {
  const library = await importPeer<Bullmq>('bullmq')
  return library && productOf(library)
}

function productOf({ Queue, Worker }: Bullmq): Product {
  return {
    name: 'BullMQ',
    signals: true,
    async connect(address) {
      const connection = { ...address, maxRetriesPerRequest: null }
      const queues: BullQueue[] = []
      return {
        async open(name) {
          const consumeBy =
            <H>(processOf: (handler: H) => Process): Consume<Payload, H> =>
            (size, handler, signal) => {
              const options = { connection, concurrency: size, autorun: false, lockDuration: LEASE_MS }
              return work(new Worker(name, processOf(handler), options), signal)
            }
          const queue = new Queue(name, {
            connection,
            defaultJobOptions: { removeOnComplete: true, removeOnFail: true },
          })
          queues.push(queue)
          await queue.waitUntilReady()
          return {
            enqueue: (payload) => queue.add(JOB, payload),
            enqueueAll: (payloads) => queue.addBulk(payloads.map((data) => ({ name: JOB, data }))),
            consume: consumeBy(
              (handler) =>
                ({ data }) =>
                  handler(data),
            ),
            consumeAbortably: consumeBy(
              (handler) =>
                ({ data }, _, own) =>
                  handler(data, own),
            ),
            delayAll: (payloads) =>
              queue.addBulk(payloads.map((data) => ({ name: JOB, data, opts: { delay: HOUR_MS } }))),
          }
        },
        close: () => Promise.all(queues.map((queue) => queue.close())),
      }
    },
  }
}

async function work(worker: BullWorker, signal: AbortSignal): Promise<void> {
  worker.on('error', () => {})
  await worker.waitUntilReady()
  const stopped = new Promise<void>((resolve, reject) => {
    const stop = () => {
      worker.cancelAllJobs()
      worker.close().then(resolve, reject)
    }
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
  })
  await Promise.all([worker.run(), stopped])
}
