import type { EnqueueStatus, NewMessage } from '../driver.js'
import { CancelledError, UnsupportedError } from '../errors.js'
import { Eventual } from '../eventual.js'
import type { Enqueued, EnqueueOptions, Entry } from '../queue.js'
import type { QueueCore } from './queue-core.js'

/** Prepares every entry, then stores them all or none. Nothing is sent when one of them is refused. */
export function enqueueEntries<T>(
  core: QueueCore<T>,
  entries: readonly Entry<T>[],
  signal?: AbortSignal,
): Eventual<Enqueued[]> {
  if (entries.length === 0) return Eventual.resolved([])
  refuseAborted(signal)
  for (const { partition } of entries) refusePartition(core, partition)
  return Eventual.all(entries.map((entry) => Eventual.from(core.prepare(entry)))).then((messages) =>
    core.store(messages, signal).then((statuses) => answers(messages, statuses)),
  )
}

/** The same for one entry, which is what most calls are about. */
export function enqueueOne<T>(core: QueueCore<T>, payload: T, options: EnqueueOptions | undefined): Eventual<Enqueued> {
  refuseAborted(options?.signal)
  refusePartition(core, options?.partition)
  const message = core.prepare({ ...options, payload })
  return message instanceof Eventual
    ? message.then((prepared) => storeOne(core, prepared, options?.signal))
    : storeOne(core, message, options?.signal)
}

function storeOne<T>(core: QueueCore<T>, message: NewMessage, signal: AbortSignal | undefined): Eventual<Enqueued> {
  return core.store([message], signal).then(([status = 'enqueued']) => ({ id: message.id, status }))
}

function refuseAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new CancelledError('idle', { cause: signal.reason })
}

function answers(messages: readonly NewMessage[], statuses: readonly EnqueueStatus[]): Enqueued[] {
  return messages.map(({ id }, index) => ({ id, status: statuses[index] ?? 'enqueued' }))
}

function refusePartition<T>(core: QueueCore<T>, partition: string | undefined): void {
  const { name, features } = core.options.backend
  if (partition !== undefined && !features.partitions) throw new UnsupportedError(name, 'partitions')
}
