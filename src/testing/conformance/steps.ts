/**
 * Steps and checks that many scenarios share, each with a deadline of its own.
 */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Delivery } from '../../delivery.js'
import type { DriverFeatures, QueueStats } from '../../driver.js'
import type { SourceEvent } from '../../events.js'
import type { Entry, Queue } from '../../queue.js'
import type { QueueSource } from '../../source.js'
import { assertConserved, PATIENCE_MS } from './wait.js'

/** Fails when the condition does not hold for so long without a break. */
export async function throughout(ms: number, condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const clock = stopwatch()
  do {
    assert.ok(await condition(), `${what}: not after ${Math.round(clock())} ms`)
    await sleep(10)
  } while (clock() < ms)
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

/** A gate that is closed. */
export function gate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => {}
  const opened = new Promise<T>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

/** Fulfils when the listeners of the signal are called. */
export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}

/** The next delivery, which has to come. */
export async function next<T>(queue: Queue<T>, ms = PATIENCE_MS): Promise<Delivery<T>> {
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

/** The counts that are named here are so, and nothing is lost. */
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

/** Enqueues in batches as large as the backend takes, at most a thousand. */
export async function enqueueMany<T>(
  queue: Queue<T>,
  { maxBatch }: DriverFeatures,
  entries: readonly Entry<T>[],
): Promise<void> {
  const size = Math.min(maxBatch, 1_000)
  for (let from = 0; from < entries.length; from += size) await queue.enqueueAll(entries.slice(from, from + size))
}

/** Makes dead letters of these payloads, with the payload as the id. */
export async function bury(queue: Queue<string>, ids: readonly string[], reason: unknown = 'for good'): Promise<void> {
  await queue.enqueueAll(ids.map((id) => ({ id, payload: id })))
  for (const _ of ids) await (await nextNow(queue)).deadLetter(reason)
}
