/** Work for queues whose servers and networks are disturbed meanwhile. */
import { type Delivery, mergeMap, pipe, type Queue, run, type SourceEvent, type Summary } from 'millrace'
import { expect } from 'vitest'
import { eventsOf } from './events.js'
import type { Effects } from './rig.js'
import { pause } from './wait.js'

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
