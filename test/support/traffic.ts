/** Work for queues whose servers and networks are disturbed meanwhile. */
import { type Delivery, mergeMap, pipe, type Queue, run, type SourceEvent, type Summary } from 'millrace'
import { expect } from 'vitest'
import { eventsOf } from './events.js'
import { expectStats } from './queues.js'
import { Effects } from './rig.js'
import { pause, until } from './wait.js'

export const idsOf = (count: number) => Array.from({ length: count }, (_, index) => `m${index}`)

export const nameOf = (error: Error) => error.name

/** Several producers, one message or a batch at a time. */
export async function produce(queues: readonly Queue<string>[], ids: readonly string[]): Promise<void> {
  const left = [...ids]
  const produceSome = async (queue: Queue<string>) => {
    for (
      let some = left.splice(0, 1 + (left.length % 5));
      some.length > 0;
      some = left.splice(0, 1 + (left.length % 5))
    ) {
      const enqueued = await queue.enqueueAll(some.map((id) => ({ payload: id, id })))
      expect(enqueued.map(({ status }) => status)).toEqual(some.map(() => 'enqueued'))
    }
  }
  await Promise.all(queues.map(produceSome))
}

/** Several consumers that go on until they are stopped; each message is an effect. */
export function consume(
  queues: readonly Queue<string>[],
  effects: Effects,
  { ms = 1, lanes = 8 }: { readonly ms?: number; readonly lanes?: number } = {},
): { stop(): Promise<Summary[]> } {
  const cancel = new AbortController()
  const work = async ({ id }: Delivery<string>) => {
    await pause(Math.random() * 2 * ms)
    effects.note(id)
  }
  const runs = queues.map((queue) => run(pipe(queue.source(), mergeMap(work, lanes)), { signal: cancel.signal }))
  for (const each of runs) each.catch(() => {})
  return {
    stop: async () => {
      cancel.abort()
      return Promise.all(runs)
    },
  }
}

/** How work is disturbed, and how much of it there is. */
export interface Disturbed {
  /** How often, and how many times at most. */
  readonly everyMs: number
  readonly most: number
  /** Messages, enqueued so long after one another, and handled so long after the last of them. */
  readonly count: number
  readonly betweenMs: number
  readonly withinMs: number
}

/** However it is disturbed meanwhile, all that is enqueued is handled once. */
export async function expectAllOnce(
  queues: readonly Queue<string>[],
  disturb: () => Promise<unknown>,
  { everyMs, most, count, betweenMs, withinMs }: Disturbed,
): Promise<void> {
  const effects = new Effects()
  const consumers = consume(queues, effects, { ms: 5, lanes: 4 })
  const [first] = queues as [Queue<string>]
  await first.stats()
  const disturbing = disturbingUntilOver(disturb, everyMs, most)
  try {
    for (const [index, id] of idsOf(count).entries()) {
      const { status } = await (queues[index % queues.length] as Queue<string>).enqueue(id, { id })
      expect([id, status]).toEqual([id, 'enqueued'])
      await pause(betweenMs)
    }
  } finally {
    disturbing.over()
  }
  expect(await disturbing.times).toBeGreaterThan(0)
  await until('all are handled', () => effects.size === count, withinMs)
  const summaries = await consumers.stop()
  expect(effects.doubled).toEqual([])
  expect(summaries.reduce((sum, { acked }) => sum + acked, 0)).toBe(count)
  await expectStats(first, { ackedTotal: count, enqueuedTotal: count, ready: 0, claimed: 0 })
}

const DISTURBED_AT_LEAST_MS = 3_000

/** Goes on until it is over, but not so short that little was disturbed; tells how many times it was. */
function disturbingUntilOver(disturb: () => Promise<unknown>, everyMs: number, most: number) {
  const endsAt = performance.now() + DISTURBED_AT_LEAST_MS
  let isOver = false
  const over = () => {
    isOver = true
  }
  const disturbing = async () => {
    let times = 0
    for (; times < most && (!isOver || performance.now() < endsAt); times += 1) {
      await pause(everyMs)
      await disturb().catch(() => {})
    }
    return times
  }
  return { times: disturbing(), over }
}

/** What a source has told of its connection. */
export const connects = (events: readonly SourceEvent[]) =>
  events.map(({ type }) => type).filter((type) => type.startsWith('reconnect'))

/** Acks all that comes, and writes down what. */
export function followed(queue: Queue<string>, signal?: AbortSignal) {
  const source = queue.source({ graceMs: 0, ...(signal && { signal }) })
  const events = eventsOf(source)
  const seen: string[] = []
  const ended = (async () => {
    for await (const delivery of source) {
      seen.push(`${delivery.id} ${delivery.attempt}`)
      await delivery.ack()
    }
  })().then(() => 'complete', nameOf)
  return { events, seen, ended, stop: () => source.stop() }
}
