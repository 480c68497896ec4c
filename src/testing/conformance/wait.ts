/**
 * Waiting for what must happen, each wait with a bound of its own, and the checks that many scenarios share.
 */
import assert from 'node:assert/strict'
import { setImmediate, setTimeout as timer } from 'node:timers/promises'
import type { Delivery } from '../../delivery.js'
import type { DriverFeatures, QueueStats } from '../../driver.js'
import type { Queue, QueuedMessage } from '../../queue.js'
import type { FaultyBackend, Verb } from '../faulty-backend.js'

/** How long what must happen may take where the scenario gives no bound: long, since a passing test never waits for it. */
export const PATIENCE_MS = 10_000
/** How much later than asked a noisy machine may be. */
export const SLACK_MS = 1_500
/** How much earlier than asked a timer may seem to fire, by two clocks that each round. */
export const EARLY_MS = 3

/** Monotonic milliseconds. */
export function now(): number {
  return performance.now()
}

/** Fulfils after a turn of the event loop: what was ready to run has run. */
export async function turn(): Promise<void> {
  await setImmediate()
}

/** Lets time pass, where that time is what is tested. */
export async function pass(ms: number): Promise<void> {
  await timer(ms)
}

/** The promise's value, or a failure when it takes longer than that. */
export async function within<T>(ms: number, what: string, promise: PromiseLike<T>): Promise<T> {
  const abort = new AbortController()
  const late = timer(ms, undefined, { signal: abort.signal }).then(
    () => assert.fail(`${what}: not within ${ms} ms`),
    () => undefined as never,
  )
  try {
    return await Promise.race([promise, late])
  } finally {
    abort.abort()
  }
}

/** The promise's value; fails when it has none after a long time. */
export function soon<T>(what: string, promise: PromiseLike<T>): Promise<T> {
  return within(PATIENCE_MS, what, promise)
}

/** Asks until the answer is true; fails after a long time. */
export async function until(what: string, holds: () => boolean | Promise<boolean>, ms = PATIENCE_MS): Promise<void> {
  const begin = now()
  while (!(await holds())) {
    const waited = now() - begin
    if (waited > ms) assert.fail(`${what}: not within ${ms} ms`)
    await timer(breath(waited))
  }
}

/** How long to wait before one asks again: the longer it takes, the less it matters to know at once. */
function breath(waitedMs: number): number {
  return Math.min(25, Math.max(2, waitedMs / 8))
}

/** Fails if the promise settles within that time. */
export async function stays(ms: number, what: string, promise: PromiseLike<unknown>): Promise<void> {
  const settled = promise.then(
    () => 'fulfilled',
    () => 'rejected',
  )
  const state = await Promise.race([settled, timer(ms, 'pending')])
  assert.equal(state, 'pending', what)
}

/**
 * Starts a consumer and fulfils when its first claim has been answered: on an empty queue it is parked then. A promise
 * that `start` makes has to be inside an object, or it would be waited for.
 */
export async function parked<T>(backend: FaultyBackend, start: () => T): Promise<T> {
  const fault = backend.inject({ verb: 'claim', kind: 'hold-reply' })
  const started = start()
  await soon('the first claim', fault.reached)
  fault.release()
  await turn()
  return started
}

/** How often a verb has been called. */
export function callsOf(backend: FaultyBackend, verb: Verb): number {
  return backend.calls.filter((call) => call === verb).length
}

/** Rejects as a cancel does, with the signal's own reason as cause. */
export async function rejectsAsCancelled(promise: PromiseLike<unknown>, reason: unknown): Promise<void> {
  await assert.rejects(Promise.resolve(promise), (error: Error) => {
    assert.equal(error.name, 'AbortError')
    assert.equal(error.cause, reason)
    return true
  })
}

/** The four states add up, with all that has ended, to what was enqueued. */
export function assertConserved(stats: QueueStats, what = 'conservation'): void {
  const held = stats.ready + stats.delayed + stats.claimed + stats.dead
  const ended =
    stats.ackedTotal +
    stats.forwardedTotal +
    stats.purgedTotal +
    stats.expiredTotal +
    stats.cancelledTotal +
    stats.droppedTotal
  assert.equal(held + ended, stats.enqueuedTotal, `${what}: ${JSON.stringify(stats)}`)
}

/** The stats named here are exactly so, the states left out are 0, and nothing is lost. */
export async function statsAre<T>(queue: Queue<T>, expected: Partial<QueueStats>): Promise<void> {
  const stats = await queue.stats()
  assertConserved(stats)
  const wanted = { ready: 0, delayed: 0, claimed: 0, dead: 0, ...expected }
  const actual = Object.fromEntries(Object.keys(wanted).map((name) => [name, stats[name as keyof QueueStats]]))
  assert.deepEqual(actual, wanted)
}

/** A lease that is short, and long enough for the store and for a busy machine. */
export function shortLeaseMs(features: DriverFeatures, ms = 250): number {
  return features.leaseStepMs > 1 ? Math.max(ms, features.leaseStepMs * 2) : ms
}

/** The next delivery, which must come. */
export async function receive<T>(queue: Queue<T>, timeoutMs = PATIENCE_MS): Promise<Delivery<T>> {
  const delivery = await queue.receive({ timeoutMs })
  assert.ok(delivery, `no delivery within ${timeoutMs} ms`)
  return delivery
}

/** Takes all that is ready, one after the other, acks it, and gives the payloads in that order. */
export async function drainPayloads<T>(queue: Queue<T>): Promise<T[]> {
  const payloads: T[] = []
  for await (const delivery of queue.source({ until: 'empty' })) {
    payloads.push(delivery.payload)
    assert.equal(await delivery.ack(), 'settled')
  }
  return payloads
}

/** Everything that an iterable gives. */
export async function all<T>(iterable: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = []
  for await (const item of iterable) items.push(item)
  return items
}

/** The ids of all messages of a state, as `peek` lists them. */
export async function idsIn<T>(queue: Queue<T>, state: QueuedMessage<T>['state']): Promise<string[]> {
  return (await all(queue.peek({ state }))).map(({ id }) => id)
}

/** Random numbers from 0 up to 1, the same for the same seed. */
export function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** The whole numbers from `first` on, as many as asked. */
export function range(count: number, first = 0): number[] {
  return Array.from({ length: count }, (_, index) => first + index)
}
