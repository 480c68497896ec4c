/** BLMOVE by hand: the server wakes the consumer itself. No leases; only the latency scenarios have it. */

import { Redis } from 'ioredis'
import type { Payload } from '../messages.js'
import type { AbortableHandler, Product } from './store.js'

export const blmove: Product = {
  name: 'BLMOVE by hand',
  signals: true,
  async connect(address) {
    const client = new Redis({ ...address })
    await client.ping()
    return {
      open: async (queue) => ({
        enqueue: (payload) => client.rpush(queue, JSON.stringify(payload)),
        enqueueAll: (payloads) => client.rpush(queue, ...payloads.map((payload) => JSON.stringify(payload))),
        consume: (_, handler, signal) => consume(client, queue, handler, signal),
        consumeAbortably: (_, handler, signal) => consume(client, queue, handler, signal),
      }),
      close: async () => client.disconnect(),
    }
  },
}

async function consume(client: Redis, queue: string, handler: AbortableHandler<Payload>, signal: AbortSignal) {
  const blocked = client.duplicate()
  blocked.on('error', () => {})
  signal.addEventListener('abort', () => blocked.disconnect(), { once: true })
  while (!signal.aborted) {
    const text = await blocked.blmove(queue, `${queue}:claimed`, 'LEFT', 'RIGHT', 0).catch(() => null)
    if (text === null) continue
    await handler(JSON.parse(text), signal).catch(() => {})
    await client.lrem(`${queue}:claimed`, 1, text)
  }
}
