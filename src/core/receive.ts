/**
 * One delivery: a consumer of its own that asks for one and ends when that is settled.
 */
import { BackendUnavailableError, CancelledError } from '../errors.js'
import { Eventual } from '../eventual.js'
import type { ReceiveOptions } from '../queue.js'
import type { Timer } from './clock.js'
import type { Consumer } from './consumer.js'
import type { DeliveryHandle } from './delivery-handle.js'
import type { QueueCore } from './queue-core.js'
import { onAbort } from './signals.js'
import { consumerDefaults } from './source.js'

/** How long one try may go unanswered. */
const TRY_BOUND_MS = 10_000

/** Waits for a delivery. `undefined` when the time is up and the queue was empty; then nothing is held. */
export function receiveOne<T>(
  core: QueueCore<T>,
  options: ReceiveOptions & { readonly take: boolean },
): Eventual<DeliveryHandle<T> | undefined> {
  if (options.signal?.aborted) return Eventual.rejected(new CancelledError('idle', { cause: options.signal.reason }))
  return new Reception(core, options).result
}

class Reception<T> {
  readonly result = new Eventual<DeliveryHandle<T> | undefined>()
  private readonly consumer: Consumer<T>
  private readonly forget: () => void
  private timer: Timer | undefined
  private down: unknown

  constructor(core: QueueCore<T>, options: ReceiveOptions & { readonly take: boolean }) {
    const { signal, timeoutMs, take } = options
    this.consumer = core.consume(
      {
        hub: core.hub,
        scope: undefined,
        decode: (stored) => core.decode(stored),
        observed: true,
        emit: (event) => {
          if (event.type === 'reconnecting') this.down = event.error
          else if (event.type === 'reconnected') this.down = undefined
        },
      },
      { ...consumerDefaults(core), take, until: timeoutMs === 0 ? 'try' : undefined },
      {
        next: (delivery) => this.received(delivery),
        error: (error) => this.end(() => this.result.reject(error)),
        complete: () => this.end(() => this.nothing()),
      },
    )
    this.forget = onAbort(signal, () => this.cancel(signal))
    // One try has no time of its own, but a backend that does not answer must not hold it for ever.
    if (timeoutMs !== undefined) this.timer = core.hub.clock.after(timeoutMs || TRY_BOUND_MS, () => this.expire())
    this.consumer.request(1)
  }

  private received(delivery: DeliveryHandle<T>): void {
    this.end(() => this.result.resolve(delivery))
    delivery.held.watch({ claimAborted: () => {}, claimEnded: () => this.consumer.stop({ ending: 'silent' }) })
  }

  private cancel(signal: AbortSignal | undefined): void {
    this.consumer.stop({ reason: signal?.reason, ending: { error: (cancelled) => cancelled } })
  }

  /** A backend that is known to be down is told of now; a claim that is in flight is still given back, behind this. */
  private expire(): void {
    const { down } = this
    this.consumer.stop({ ending: 'complete' })
    if (down !== undefined && this.result.pending) {
      this.end(() =>
        this.result.reject(new BackendUnavailableError('the backend could not be reached in time', { cause: down })),
      )
    }
  }

  /** Empty, unless a claim went unanswered: then nobody knows. */
  private nothing(): void {
    if (this.consumer.summary.abandoned === 0 && !this.consumer.withdrawn) this.result.resolve(undefined)
    else this.result.reject(new BackendUnavailableError('the backend did not answer in time'))
  }

  private end(work: () => void): void {
    this.timer?.stop()
    this.forget()
    work()
  }
}
