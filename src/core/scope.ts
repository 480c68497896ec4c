/**
 * Which consumers belong to a sink or an iterator.
 *
 * A sink has to stop, count and await the consumers behind a flow, also when operators of RxJS stand between, which
 * pass on nothing but values. A subscription to a cold chain reaches its source synchronously, so the scope that is
 * current meanwhile is the one that the consumer belongs to. The same holds for a source that is subscribed to again
 * inside the notification that ended it (`retry`, `repeat`), so those run in the scope too.
 */

import type { Released, Summary } from '../events.js'
import { Eventual } from '../eventual.js'
import type { StopOptions } from './consumer.js'

/** What a scope wants otherwise than the source's own options say. */
export interface ScopeOptions {
  readonly until?: 'empty' | 'idle'
  readonly drainMs?: number
  readonly graceMs?: number
}

/** A consumer, as its scope sees it. */
export interface Member {
  readonly open: boolean
  readonly summary: Summary
  readonly closed: Eventual<Released>
  stop(options: StopOptions): Eventual<Released>
  leaveLoop(): void
}

export class Scope {
  private readonly members: Member[] = []

  constructor(readonly options: ScopeOptions = {}) {}

  adopt(member: Member): void {
    this.members.push(member)
  }

  /** Runs `work`; the consumers that it starts belong to this scope. */
  run<R>(work: () => R): R {
    const outer = current
    current = this
    try {
      return work()
    } finally {
      current = outer
    }
  }

  stop(options: StopOptions): void {
    for (const member of [...this.members]) member.stop(options)
  }

  /** The loop over what these consumers deliver has been left. */
  leaveLoop(): void {
    for (const member of this.members) member.leaveLoop()
  }

  /** The same, for those that have been stopped. */
  leaveStopped(): void {
    for (const member of this.members) if (!member.open) member.leaveLoop()
  }

  /** Fulfils when each consumer has given back what it held. Never rejects. */
  closed(): Eventual<void> {
    return Eventual.all(this.members.map((member) => member.closed)).then(() => undefined)
  }

  /** The accounts of all consumers, added up. */
  summary(): Summary {
    const sum = { acked: 0, requeued: 0, deadLettered: 0, lost: 0, released: 0, settledDuringGrace: 0, abandoned: 0 }
    for (const { summary } of this.members) {
      for (const name of Object.keys(sum) as (keyof Summary)[]) sum[name] += summary[name]
    }
    return sum
  }
}

/** The scope in which a subscription happens now, if any. */
export function currentScope(): Scope | undefined {
  return current
}

let current: Scope | undefined
