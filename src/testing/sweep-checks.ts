/**
 * What must hold after a cancel.
 */
import { AssertionError } from 'node:assert'
import type { StoredMessage } from '../driver.js'
import type { Released } from '../events.js'
import type { CancelSweep } from './cancel-sweep.js'
import { conserved } from './conserved.js'
import type { CancelWay } from './sweep-run.js'
import type { Inspection } from './test-queue.js'

/** What a run has seen. */
export interface Findings {
  /** Ids in the order in which the store has acked them. */
  readonly acks: string[]
  /** Ids of those that were given back as another attempt. */
  readonly requeues: string[]
  /** Calls of the driver after the cancel had come to its end. */
  readonly laterCalls: string[]
  /** What the cancel answered. */
  readonly released?: Released
  /** The store when the cancel answered. */
  readonly atRelease?: Inspection
  /** The store in the end. */
  readonly end?: Inspection
  readonly timersLeft?: number
}

/** Throws for the first thing that does not hold. */
export function verify<T>(findings: Findings, sweep: CancelSweep<T>, way: CancelWay, title: string): void {
  const expect = (holds: boolean, what: string, found: unknown): void => {
    if (!holds) throw new AssertionError({ message: `${what}: not when ${title}; found ${JSON.stringify(found)}` })
  }
  const { released, atRelease, end } = findings
  expect(released !== undefined, 'the cancel comes to its end', released)
  expect(released?.abandoned === 0, 'nothing is abandoned', released)
  for (const store of [atRelease, end])
    expect(store !== undefined && conserved(store.stats), 'messages are conserved', store)
  expect(atRelease?.stats.claimed === 0, 'no claim is left when the cancel has come to its end', atRelease?.stats)
  expect(findings.laterCalls.length === 0, 'the driver is left alone afterwards', findings.laterCalls)
  expect(findings.timersLeft === 0, 'no timer is left', findings.timersLeft)
  expect(new Set(findings.acks).size === findings.acks.length, 'each message is acked once', findings.acks)
  if (!end) return
  for (const message of end.messages) {
    const { id, attempt, state } = message
    const again = findings.requeues.filter((each) => each === id).length
    expect(attempt <= again + 1, `no attempt of ${id} is counted that was not made`, { attempt, requeues: again })
    if (sweep.mayFail?.(id)) continue
    const wasSeen = way === 'return' && again === 1
    expect(state === 'ready' && (attempt === 1 || wasSeen), `message ${id} is acked or as good as new`, {
      attempt,
      state,
    })
  }
  if (sweep.mayFail) return
  expect(end.stats.dead === 0, 'nothing is dead', end.stats)
  expect(
    inOrder(end.messages, sweep.arrivals),
    'what is back is in its old order',
    end.messages.map(({ id }) => id),
  )
}

/** Whether messages of one priority stand as they arrived. */
function inOrder(messages: readonly StoredMessage[], arrivals: string): boolean {
  return messages.every((message, index) => {
    const before = messages[index - 1]
    if (before?.priority !== message.priority) return true
    return arrivals.indexOf(before.id) < arrivals.indexOf(message.id)
  })
}
