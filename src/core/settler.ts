/**
 * Gathers the settlements of one turn, from all consumers of a queue, into one request.
 */
import type { QueueDriver, SettleCommand, SettleResult } from '../driver.js'
import { BackendUnavailableError, ClosedError, SettlementUnknownError, TokenExpiredError } from '../errors.js'
import { ask, type RequestContext } from './request.js'

/** How long a settlement may stay unconfirmed. */
export const SETTLE_BOUND_MS = 5_000

/** The most commands of one request. */
const LARGEST_BATCH = 1_000

/** Told once how a settlement ended. */
export interface SettleListener {
  onSettled(result: SettleResult): void
  onUnsettled(error: unknown): void
}

export class Settler {
  private commands: SettleCommand[] = []
  private listeners: SettleListener[] = []

  constructor(
    private readonly driver: QueueDriver,
    private readonly context: RequestContext,
  ) {}

  /** Adds a command to the next flush. */
  push(command: SettleCommand, listener: SettleListener): void {
    this.commands.push(command)
    this.listeners.push(listener)
  }

  /** Sends what has gathered. */
  flush(): void {
    while (this.commands.length > 0) {
      const commands = this.commands.length > LARGEST_BATCH ? this.commands.splice(0, LARGEST_BATCH) : this.commands
      const listeners = this.listeners.length > LARGEST_BATCH ? this.listeners.splice(0, LARGEST_BATCH) : this.listeners
      if (commands === this.commands) {
        this.commands = []
        this.listeners = []
      }
      this.send(commands, listeners)
    }
  }

  private send(commands: readonly SettleCommand[], listeners: readonly SettleListener[]): void {
    const answer = ask(this.context, (token) => this.driver.settle(commands, token), SETTLE_BOUND_MS)
    answer.listen(
      (results) => {
        for (let index = 0; index < listeners.length; index += 1) {
          listeners[index]?.onSettled(results[index] ?? MISSING)
        }
      },
      (error) => {
        for (const listener of listeners) tellFailure(listener, error)
      },
    )
  }
}

/** A request that was refused has changed nothing, unless the store has forgotten what became of it. */
function tellFailure(listener: SettleListener, error: unknown): void {
  if (error instanceof BackendUnavailableError) listener.onUnsettled(unknown(error))
  else if (error instanceof ClosedError || error instanceof TokenExpiredError) listener.onUnsettled(error)
  else listener.onSettled({ state: 'refused', error: error as Error })
}

const MISSING: SettleResult = { state: 'refused', error: new Error('the driver answered fewer results than commands') }

function unknown(cause: Error): SettlementUnknownError {
  return new SettlementUnknownError(`a settlement was not confirmed within ${SETTLE_BOUND_MS} ms`, { cause })
}
