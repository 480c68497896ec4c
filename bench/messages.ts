/** The messages of the benches that compare stores, and what is done with them. */

export interface Payload {
  readonly text: string
}

/** 200 bytes of JSON. */
export const PAYLOAD: Payload = { text: 'x'.repeat(189) }

export type Handler<T> = (work: T) => Promise<void>

/**
 * Consumes until the signal aborts, which a handler may do: what it handles then is settled too. Fulfilled when the
 * consumer has stopped.
 */
export type Consume<T, H = Handler<T>> = (size: number, handler: H, signal: AbortSignal) => Promise<unknown>

interface Enqueueing {
  enqueue(payload: Payload): Promise<unknown>
  enqueueAll(payloads: readonly Payload[]): Promise<unknown>
}

/** Puts `count` messages in, so many in a call. */
export async function fill(
  count: number,
  putIn: (payloads: readonly Payload[]) => Promise<unknown>,
  size = 1_000,
): Promise<void> {
  for (let left = count; left > 0; left -= size) await putIn(new Array<Payload>(Math.min(left, size)).fill(PAYLOAD))
}

/** Consumes until `count` messages are settled. */
export async function consumeAll<T>(
  consume: Consume<T>,
  size: number,
  count: number,
  sizeOf: (work: T) => number,
): Promise<void> {
  const stop = new AbortController()
  let left = count
  const handler = async (work: T) => {
    left -= sizeOf(work)
    if (left === 0) stop.abort()
  }
  await consume(size, handler, stop.signal)
}

/** Handles `count` messages, each of which enqueues another, so that as many stay as there are. */
export async function replaceAll(
  { enqueue, consume }: Pick<Enqueueing, 'enqueue'> & { readonly consume: Consume<Payload> },
  lanes: number,
  count: number,
): Promise<void> {
  const stop = new AbortController()
  let left = count
  const handler = async () => {
    await enqueue(PAYLOAD)
    left -= 1
    if (left === 0) stop.abort()
  }
  await consume(lanes, handler, stop.signal)
}

/** A store in which all that is enqueued in one turn shares a call. */
export function grouped<S extends Enqueueing>(store: S): S {
  let waiting: Payload[] = []
  let stored: Promise<unknown> | undefined
  const flush = () => {
    const payloads = waiting
    waiting = []
    stored = undefined
    return store.enqueueAll(payloads)
  }
  const enqueue = (payload: Payload) => {
    waiting.push(payload)
    stored ??= Promise.resolve().then(flush)
    return stored
  }
  return { ...store, enqueue }
}
