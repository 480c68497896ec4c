import { json } from '../codec.js'
import type { StoredMessage } from '../driver.js'
import { Eventual } from '../eventual.js'
import { paged } from './paging.js'
import type { QueueCore } from './queue-core.js'

/** A message as `peek` shows it. */
export interface QueuedMessage<T> {
  readonly id: string
  readonly state: 'ready' | 'delayed' | 'claimed'
  /** Absent when the bytes do not decode. */
  readonly payload: T | undefined
  readonly bytes: Uint8Array
  readonly attempt: number
  readonly deliveryCount: number
  readonly priority: number
  readonly key: string | undefined
  readonly headers: Readonly<Record<string, string>>
  readonly enqueuedAt: number
  /** When a delayed message becomes ready. */
  readonly dueAt: number | undefined
  readonly leaseExpiresAt: number | undefined
  /** The label of the consumer that holds it. */
  readonly consumer: string | undefined
  /** What `delivery.progress()` said last. */
  readonly progress: unknown
}

/** Lists messages of one state, or of all three, without claiming them. */
export function listing<T>(
  core: QueueCore<T>,
  options: { readonly state?: StoredMessage['state']; readonly limit?: number },
): AsyncIterable<QueuedMessage<T>> {
  const states: StoredMessage['state'][] = options.state ? [options.state] : ['ready', 'delayed', 'claimed']
  return paged(
    core.hub.clock,
    ({ after, limit }) => {
      const [index, cursor] = position(after)
      const state = states[index] as StoredMessage['state']
      const page = { limit, ...(cursor !== undefined && { after: cursor }) }
      return core
        .call((driver) => driver.list(state, page))
        .then(({ items, next }) => {
          const following =
            next !== undefined ? `${index}:${next}` : index + 1 < states.length ? `${index + 1}:` : undefined
          return { items, ...(following !== undefined && { next: following }) }
        })
    },
    (stored) => queued(core, stored),
    options.limit,
  )
}

/** A cursor over several states: which of them, and the driver's own cursor in it. */
function position(after: string | undefined): [number, string | undefined] {
  if (after === undefined) return [0, undefined]
  const colon = after.indexOf(':')
  const cursor = after.slice(colon + 1)
  return [Number(after.slice(0, colon)), cursor === '' ? undefined : cursor]
}

function queued<T>(core: QueueCore<T>, stored: StoredMessage): QueuedMessage<T> {
  const {
    id,
    state,
    bytes,
    attempt,
    deliveryCount,
    priority,
    key,
    headers = {},
    enqueuedAt,
    dueAt,
    leaseExpiresAt,
    consumer,
  } = stored
  const progress = stored.progress && json().decode(stored.progress)
  return {
    id,
    state,
    payload: decoded(core, bytes),
    bytes,
    attempt,
    deliveryCount,
    priority,
    key,
    headers,
    enqueuedAt,
    dueAt,
    leaseExpiresAt,
    consumer,
    progress,
  }
}

/** The payload of a listing: what does not decode, or would need an asynchronous schema, is shown as bytes alone. */
export function decoded<T>(core: QueueCore<T>, bytes: Uint8Array): T | undefined {
  try {
    const payload = core.decode(bytes)
    return payload instanceof Eventual ? undefined : payload
  } catch {
    return undefined
  }
}
