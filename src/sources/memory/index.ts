/**
 * The memory backend: queues that live as long as the backend object, in this process.
 */
import type { SchedulerLike } from 'rxjs'
import type { Backend } from '../../driver.js'
import { InvalidOptionError } from '../../errors.js'
import { MemoryBackend } from './backend.js'

/** Options of {@link memoryBackend}. */
export interface MemoryBackendOptions {
  /** The clock and timers of all that runs on this backend; a `TestScheduler` runs it in virtual time. */
  readonly scheduler?: SchedulerLike
}

/**
 * A backend that keeps its queues in memory. Two queues opened here under one name are one queue.
 *
 * Messages live as long as the backend object, also while no queue is open. Closing the backend drops them. It holds
 * no timer and nothing else that would keep the process alive.
 *
 * Throws `InvalidOptionError` for an option that it does not know or that is not what it should be.
 *
 * @example
 * const backend = memoryBackend()
 * await using orders = new Queue<Order>('orders', { backend })
 */
export function memoryBackend(options: MemoryBackendOptions = {}): Backend {
  return new MemoryBackend(checkedScheduler(options))
}

function checkedScheduler(options: MemoryBackendOptions): SchedulerLike | undefined {
  if (typeof options !== 'object' || options === null) throw new InvalidOptionError('options', options, 'an object')
  for (const [field, value] of Object.entries(options)) {
    if (field !== 'scheduler') throw new InvalidOptionError(field, value, 'left out: there is no such option')
  }
  const { scheduler } = options
  if (scheduler !== undefined && !isScheduler(scheduler)) {
    throw new InvalidOptionError('scheduler', scheduler, 'an RxJS scheduler')
  }
  return scheduler
}

function isScheduler(value: unknown): value is SchedulerLike {
  if (typeof value !== 'object' || value === null) return false
  return (
    'now' in value && typeof value.now === 'function' && 'schedule' in value && typeof value.schedule === 'function'
  )
}
