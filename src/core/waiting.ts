/**
 * Who waits for something to become ready.
 *
 * A hint wakes one waiter of each kind, not all: a waiter that then finds as much as it asked for wakes the next.
 * So one message costs one claim, however many wait, and many messages still reach everybody.
 */
export interface Waiter {
  /** Waiters of the same kind can stand in for each other. */
  readonly kind: string
  /** Something may be ready. */
  wake(): void
}

export class WaitingRoom {
  private readonly kinds = new Map<string, Set<Waiter>>()

  get size(): number {
    let size = 0
    for (const waiters of this.kinds.values()) size += waiters.size
    return size
  }

  enter(waiter: Waiter): void {
    const waiters = this.kinds.get(waiter.kind)
    if (waiters) waiters.add(waiter)
    else this.kinds.set(waiter.kind, new Set([waiter]))
  }

  leave(waiter: Waiter): void {
    const waiters = this.kinds.get(waiter.kind)
    if (waiters?.delete(waiter) && waiters.size === 0) this.kinds.delete(waiter.kind)
  }

  /** Wakes the one that has waited longest. */
  wakeNext(kind: string): void {
    for (const waiter of this.kinds.get(kind) ?? []) {
      this.leave(waiter)
      waiter.wake()
      return
    }
  }

  /** Wakes the one of each kind that has waited longest. */
  wakeAll(): void {
    for (const kind of [...this.kinds.keys()]) this.wakeNext(kind)
  }
}
