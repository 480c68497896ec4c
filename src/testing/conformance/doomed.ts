/**
 * A consumer that dies: from one instant on, nothing that it says reaches the store any more.
 */
import type { QueueStats } from '../../driver.js'
import type { Queue, QueueOptions } from '../../queue.js'
import type { Fault, FaultyBackend } from '../faulty-backend.js'
import type { Bench } from './kit.js'
import { until } from './wait.js'

/** A client of a queue with a life that can be ended. */
export interface Doomed<T> {
  readonly queue: Queue<T>
  readonly client: FaultyBackend
  /** Ends it before the next call, or before or after the call that is named. What it says is heard no more. */
  kill(at?: { readonly call: number; readonly when: 'before' | 'after' }): void
  /** It was not dead, only cut off: what it has said meanwhile arrives now. */
  revive(): void
}

const FOREVER = Number.POSITIVE_INFINITY

/** Another client of a queue that is going to die. */
export async function doomed<T>(
  bench: Bench,
  queue: Queue<T>,
  options: Partial<QueueOptions<T>> = {},
): Promise<Doomed<T>> {
  const client = await bench.client()
  const faults: ReturnType<FaultyBackend['inject']>[] = []
  const inject = (fault: Omit<Fault, 'verb'>) => faults.push(client.inject({ verb: '*', ...fault }))
  return {
    client,
    queue: await bench.peer(queue, { ...options, backend: client }),
    kill: ({ call, when } = { call: 1, when: 'before' }) => {
      if (when === 'after') inject({ kind: 'hold-reply', nth: call })
      inject({ kind: 'hold-request', nth: when === 'after' ? call + 1 : call, times: FOREVER })
    },
    revive: () => {
      for (const fault of faults.splice(0)) {
        fault.remove()
        fault.release()
      }
    },
  }
}

/** Cuts a client off from renewing its leases, and from nothing else: they lapse while it goes on. */
export function stopRenewing(client: FaultyBackend): void {
  client.inject({ verb: 'renew', kind: 'drop-request', times: FOREVER })
}

/** Sweeps, as any consumer that lives would, until the stats are as they should be. */
export async function sweptUntil<T>(
  bench: Bench,
  queue: Queue<T>,
  what: string,
  holds: (stats: QueueStats) => boolean,
): Promise<void> {
  const driver = bench.backend.open(queue.name, { close: () => Promise.resolve() })
  try {
    await until(what, async () => {
      await driver.sweep(1_000)
      return holds(await queue.stats())
    })
  } finally {
    await driver.close()
  }
}
