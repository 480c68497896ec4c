/**
 * Waits for the end of a message, from whichever process: woken by hints, with a slow poll as the floor.
 */
import { json } from '../codec.js'
import type { StoredOutcome } from '../driver.js'
import { CancelledError } from '../errors.js'
import { Eventual } from '../eventual.js'
import type { Outcome, ReceiveOptions } from '../queue.js'
import type { Timer } from './clock.js'
import type { QueueCore } from './queue-core.js'
import { onAbort } from './signals.js'

/** How often a wait looks without a hint. */
const POLL_MS = 1_000

export class OutcomeWait<T> {
  readonly result = new Eventual<Outcome>()
  private readonly releases: (() => void)[] = []
  private poll: Timer | undefined
  private reading = false
  private again = false

  constructor(
    private readonly core: QueueCore<T>,
    private readonly id: string,
    private readonly options: ReceiveOptions,
  ) {
    const { signal, timeoutMs } = options
    if (signal?.aborted) {
      this.result.reject(new CancelledError('idle', { cause: signal.reason }))
      return
    }
    // Listening starts before the first read, so that what happens in between is not missed. One look needs none.
    if (timeoutMs !== 0)
      this.releases.push(
        core.hub.watch((hint) => hint.kind !== 'down' && (!('id' in hint) || hint.id === id) && this.read()),
      )
    this.releases.push(core.whenClosing((error) => this.end(() => this.result.reject(error))))
    this.releases.push(
      onAbort(signal, () => this.end(() => this.result.reject(new CancelledError('idle', { cause: signal?.reason })))),
    )
    if (timeoutMs !== undefined && timeoutMs > 0) {
      const timer = core.hub.clock.after(timeoutMs, () => this.end(() => this.result.resolve({ state: 'pending' })))
      this.releases.push(() => timer.stop())
    }
    this.read()
  }

  private read(): void {
    if (!this.result.pending) return
    if (this.reading) {
      this.again = true
      return
    }
    this.reading = true
    this.again = false
    this.core
      .call((driver) => driver.outcome(this.id, this.options.timeoutMs !== 0))
      .then(
        (stored) => this.answered(stored),
        (error) => this.end(() => this.result.reject(error)),
      )
  }

  private answered(stored: StoredOutcome): void {
    this.reading = false
    if (stored.state !== 'pending' || this.options.timeoutMs === 0)
      return this.end(() => this.result.resolve(outcomeOf(stored)))
    if (this.again) return this.read()
    if (!this.result.pending) return
    this.poll?.stop()
    this.poll = this.core.hub.clock.after(POLL_MS, () => this.read())
  }

  private end(work: () => void): void {
    if (!this.result.pending) return
    this.poll?.stop()
    for (const release of this.releases.splice(0)) release()
    work()
  }
}

function outcomeOf(stored: StoredOutcome): Outcome {
  if (stored.state !== 'done') return stored
  return { state: 'done', result: stored.result && json().decode(stored.result) }
}
