import type { BackendOwner, Claim, Queue, QueueDriver, QueueOptions } from 'millrace'
import { type FaultyBackend, faultyBackend } from 'millrace/testing'
import { onTestFinished } from 'vitest'
import { queueOn } from './queues.js'

/** A client of a queue with a life of its own: from `kill` on, nothing that it says reaches the store. */
interface Doomed<T> {
  readonly queue: Queue<T>
  kill(): void
}

/** Another client of a queue, as another process would be. It is let go when the test ends. */
export function doomed<T = string>(
  queue: Queue<T>,
  backend: FaultyBackend,
  options: Partial<QueueOptions<T>> = {},
): Doomed<T> {
  const client = faultyBackend(backend)
  const theirs = queueOn<T>(client, options, queue.name)
  return {
    queue: theirs,
    kill: () => {
      const fault = client.inject({ verb: '*', kind: 'hold-request', times: Number.POSITIVE_INFINITY })
      // Runs before the queue is closed, which would wait for answers otherwise.
      onTestFinished(() => {
        fault.remove()
        fault.release()
      })
    },
  }
}

/** The same backend, whose claims can all be taken from their holders, behind their backs. */
export function revocable(backend: FaultyBackend): { readonly backend: FaultyBackend; revokeAll(): PromiseLike<void> } {
  const granted: Claim[] = []
  let store: QueueDriver | undefined
  const open = (queue: string, owner: BackendOwner) => {
    const driver = backend.open(queue, owner)
    store = driver
    const claim: QueueDriver['claim'] = (request) => {
      const reply = driver.claim(request)
      void reply.then(({ claims }) => granted.push(...claims))
      return reply
    }
    return { ...driver, claim }
  }
  const release = ({ id, token }: Claim) => ({ id, token, kind: 'release', delivered: true }) as const
  return {
    backend: { ...backend, open },
    revokeAll: async () => {
      await store?.settle(granted.splice(0).map(release), { session: 'revoker', seq: 1, floor: 1 })
    },
  }
}
