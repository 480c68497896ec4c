/**
 * Waiting with a deadline: every wait of the suite ends, and says what it waited for.
 */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Delivery } from '../../delivery.js'
import type { DriverFeatures, QueueStats } from '../../driver.js'
import type { SourceEvent } from '../../events.js'
import type { Queue } from '../../queue.js'
import type { QueueSource } from '../../source.js'
import type { Bench } from './kit.js'

/** How much later than its instant a thing may happen on a busy machine, and still not be a poll or a lease late. */
export const LATE_MS = 1_000

/** How long a thing that should happen at once may take before a scenario gives it up. */
export const DEADLINE_MS = 10_000

/** What timers of two clocks may differ by. */
export const EARLY_MS = 5

/** Fulfils or rejects as `work` does; fails when that has not ended in time. */
export async function within<T>(work: PromiseLike<T>, what: string, ms = DEADLINE_MS): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new assert.AssertionError({ message: `${what}: not within ${ms} ms` })), ms)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Fulfils when the condition holds; fails when it does not in time. */
export async function eventually(
  condition: () => boolean | Promise<boolean>,
  what: string,
  ms = DEADLINE_MS,
): Promise<void> {
  const clock = stopwatch()
  while (!(await condition())) {
    if (clock() > ms) assert.fail(`${what}: not within ${ms} ms`)
    await sleep(5)
  }
}

/** Fails when the condition does not hold for so long without a break. */
export async function throughout(ms: number, condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const clock = stopwatch()
  do {
    assert.ok(await condition(), `${what}: not after ${Math.round(clock())} ms`)
    await sleep(10)
  } while (clock() < ms)
}

/** Lets real time pass, where that is the point of the scenario: not a millisecond less. */
export async function pass(ms: number): Promise<void> {
  const clock = stopwatch()
  for (let left = ms; left > 0; left = ms - clock()) await sleep(Math.ceil(left))
}

/** Milliseconds since it was made. */
export function stopwatch(): () => number {
  const startedAt = performance.now()
  return () => performance.now() - startedAt
}

/** A promise to be fulfilled from outside. */
export interface Gate<T = void> {
  readonly opened: Promise<T>
  open(value: T): void
}

export function gate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => {}
  const opened = new Promise<T>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

/** The next delivery, which has to come. */
export async function next<T>(queue: Queue<T>, ms = DEADLINE_MS): Promise<Delivery<T>> {
  const delivery = await queue.receive({ timeoutMs: ms })
  assert.ok(delivery, `a delivery of ${queue.name}: not within ${ms} ms`)
  return delivery
}

/** The next delivery, which has to be there now. */
export async function nextNow<T>(queue: Queue<T>): Promise<Delivery<T>> {
  const delivery = await queue.tryReceive()
  assert.ok(delivery, `nothing is ready in ${queue.name}`)
  return delivery
}

/** Claims and acks all that is ready, in the order in which it comes. */
export async function drained<T>(queue: Queue<T>): Promise<Delivery<T>[]> {
  const deliveries: Delivery<T>[] = []
  for (;;) {
    const delivery = await queue.tryReceive()
    if (!delivery) return deliveries
    assert.equal(await delivery.ack(), 'settled')
    deliveries.push(delivery)
  }
}

/** The payloads of all that is ready, in the order in which it comes; acks it. */
export async function payloads<T>(queue: Queue<T>): Promise<T[]> {
  return (await drained(queue)).map(({ payload }) => payload)
}

/** All that an async iterable yields. */
export async function listed<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

/** A lease as short as asked for, where the backend can grant that. */
export function leaseOf({ leaseStepMs }: DriverFeatures, ms: number): number {
  return Math.max(ms, leaseStepMs * 2)
}

/** Every message is in one state or in one total. */
export function assertConserved(stats: QueueStats, hint = ''): void {
  const { ready, delayed, claimed, dead } = stats
  const { ackedTotal, forwardedTotal, purgedTotal, expiredTotal, cancelledTotal, droppedTotal } = stats
  const ended = ackedTotal + forwardedTotal + purgedTotal + expiredTotal + cancelledTotal + droppedTotal
  const sum = ready + delayed + claimed + dead + ended
  assert.equal(sum, stats.enqueuedTotal, `messages are lost or made up ${hint}: ${JSON.stringify(stats)}`)
}

/** The counts of the states, as far as they are named here, and nothing lost. */
export async function assertDepth<T>(queue: Queue<T>, expected: Partial<QueueStats>): Promise<void> {
  const stats = await queue.stats()
  const actual = Object.fromEntries(Object.keys(expected).map((name) => [name, stats[name as keyof QueueStats]]))
  assert.deepEqual(actual, expected)
  assertConserved(stats)
}

/** The events of a source, from now on. */
export function recorded<T>(source: QueueSource<T>): SourceEvent[] {
  const events: SourceEvent[] = []
  source.events.subscribe((event) => events.push(event))
  return events
}

/** How many calls of a verb the backend has seen. */
export function callsOf(bench: Bench, verb: Bench['backend']['calls'][number]): number {
  return bench.backend.calls.filter((call) => call === verb).length
}

/** Whole numbers from 0 up. */
export function range(length: number): number[] {
  return Array.from({ length }, (_, index) => index)
}

/** Numbers from 0 up to 1 that a seed decides. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Enqueues in batches as large as the backend takes, at most a thousand. */
export async function enqueueMany<T>(
  queue: Queue<T>,
  { maxBatch }: DriverFeatures,
  entries: readonly Parameters<Queue<T>['enqueueAll']>[0][number][],
): Promise<void> {
  const size = Math.min(maxBatch, 1_000)
  for (let from = 0; from < entries.length; from += size) await queue.enqueueAll(entries.slice(from, from + size))
}

/** Makes dead letters of these payloads, with the payload as the id. */
export async function bury(queue: Queue<string>, ids: readonly string[], reason: unknown = 'for good'): Promise<void> {
  await queue.enqueueAll(ids.map((id) => ({ id, payload: id })))
  for (const _ of ids) await (await nextNow(queue)).deadLetter(reason)
}
