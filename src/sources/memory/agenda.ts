import { IndexedHeap } from './indexed-heap.js'
import type { Message } from './message.js'

/** All messages that something happens to by itself: a lease that lapses, a time to live that runs out. */
export class Agenda extends IndexedHeap<Message> {
  protected above(a: Message, b: Message): boolean {
    return a.instant < b.instant
  }

  /** Puts a message down for an instant, instead of the one it was put down for before. */
  schedule(message: Message, instant: number): void {
    message.instant = instant
    this.put(message)
  }
}
