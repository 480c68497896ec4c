import { Message } from './message.js'

const MOST_KEPT = 1_024

/**
 * Records to use again.
 *
 * A queue that runs evenly forgets one message for each that it stores. Using the record again spares the garbage
 * collector nearly all of its work, which would otherwise be most of the cost of a message.
 */
export class MessagePool {
  readonly #free: Message[] = []

  take(): Message {
    return this.#free.pop() ?? new Message()
  }

  /** Takes back a record that nothing refers to any more. */
  give(message: Message): void {
    if (this.#free.length < MOST_KEPT) this.#free.push(message)
  }
}
