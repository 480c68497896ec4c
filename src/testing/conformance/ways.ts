/**
 * The ways to consume from a queue, and for each the way to cancel that: what holds for one has to hold for all.
 */
import assert from 'node:assert/strict'
import type { Subscription } from 'rxjs'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { run } from '../../sinks/run.js'
import type { QueueSource } from '../../source.js'
import { rejectsAsCancelled } from './wait.js'

/** A consumer that is under way. */
export interface Consuming {
  /** The payloads that its user was shown. */
  readonly seen: readonly string[]
  /** Cancels; fulfils when it is cancelled, and rejects when that was told in the wrong way. */
  cancel(): Promise<void>
}

/** A way to consume and to cancel. */
export interface Way {
  readonly name: string
  start(queue: Queue<string>): Consuming
}

const REASON = new Error('the caller had enough')

function withSignal(
  consume: (queue: Queue<string>, signal: AbortSignal, seen: string[]) => Promise<unknown>,
): Way['start'] {
  return (queue) => {
    const controller = new AbortController()
    const seen: string[] = []
    const consuming = consume(queue, controller.signal, seen)
    consuming.catch(() => {})
    return {
      seen,
      cancel: () => {
        controller.abort(REASON)
        return rejectsAsCancelled(consuming, REASON)
      },
    }
  }
}

/** The end of the iteration and that of `stop()` or the like, each as it should be. */
function iterating(
  cancel: (source: QueueSource<string>, iterator: AsyncIterator<unknown>) => PromiseLike<unknown>,
): Way['start'] {
  return (queue) => {
    const source = queue.source()
    const iterator = source[Symbol.asyncIterator]()
    const seen: string[] = []
    const first = iterator.next().then((result) => {
      if (!result.done) seen.push(result.value.payload)
      return result.done
    })
    first.catch(() => {})
    return {
      seen,
      cancel: async () => {
        await cancel(source, iterator)
        assert.equal(await first, true, 'a pending next() is done after the cancel')
        assert.deepEqual(await iterator.next(), { done: true, value: undefined })
      },
    }
  }
}

function subscribed(cancel: (source: QueueSource<string>, subscription: Subscription) => Promise<void>): Way['start'] {
  return (queue) => {
    const seen: string[] = []
    const source = queue.source({ credit: 3 })
    const subscription = source.subscribe({ next: ({ payload }) => seen.push(payload) })
    return { seen, cancel: () => cancel(source, subscription) }
  }
}

async function runPipeline(queue: Queue<string>, signal: AbortSignal, seen: string[]): Promise<void> {
  const summary = await run(
    pipe(
      queue.source(),
      mergeMap(({ payload }) => seen.push(payload), 3),
    ),
    { signal },
  )
  assert.equal(summary.acked + summary.requeued + summary.deadLettered, 0)
}

function runWithSignal(queue: Queue<string>): Consuming {
  const controller = new AbortController()
  const seen: string[] = []
  const running = runPipeline(queue, controller.signal, seen)
  running.catch(() => {})
  return {
    seen,
    cancel: () => {
      controller.abort(REASON)
      return running
    },
  }
}

async function iterate(queue: Queue<string>, signal: AbortSignal, seen: string[]): Promise<void> {
  for await (const delivery of queue.source({ signal })) seen.push(delivery.payload)
}

async function receiveInto(queue: Queue<string>, signal: AbortSignal, seen: string[]): Promise<void> {
  const delivery = await queue.receive({ signal })
  if (delivery) seen.push(delivery.payload)
}

async function takeInto(queue: Queue<string>, signal: AbortSignal, seen: string[]): Promise<void> {
  const payload = await queue.take({ signal })
  if (payload !== undefined) seen.push(payload)
}

/** Every way, the Observable and the iterator face, and those that are about one message. */
export const WAYS: readonly Way[] = [
  { name: 'receive() with a signal', start: withSignal(receiveInto) },
  { name: 'take() with a signal', start: withSignal(takeInto) },
  { name: 'for await with a signal', start: withSignal(iterate) },
  { name: 'run() with a signal', start: runWithSignal },
  { name: 'iterator.return()', start: iterating((_source, iterator) => iterator.return?.() as Promise<unknown>) },
  { name: 'stop() of an iterated source', start: iterating((source) => source.stop()) },
  { name: 'disposal of an iterated source', start: iterating((source) => source[Symbol.asyncDispose]()) },
  {
    name: 'unsubscribe()',
    start: subscribed(async (source, subscription) => {
      subscription.unsubscribe()
      await source.stop()
    }),
  },
  {
    name: 'stop() of a subscribed source',
    start: subscribed(async (source, subscription) => {
      await source.stop()
      assert.equal(subscription.closed, true, 'stop() completes the Observable')
    }),
  },
]
