/** The same by hand: one connection, one script, and no code between them that a library would need. */

import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { type Consume, grouped, type Payload } from '../messages.js'
import { LEASE_MS, type Product, type Store } from './store.js'

/** How often it looks while nothing is ready. */
const POLL_MS = 1

const SCRIPT = readFileSync(new URL('by-hand.lua', import.meta.url), 'utf8')
const KEYS = 4

/** A claim, and the payload, by turns. */
type Claims = readonly string[]

interface Scripted extends Redis {
  messages(...args: readonly (string | number)[]): Promise<Claims>
}

/** Acks what is done and claims as many again, in one call. */
export const byHandFused = productOf('by hand, ack and next claim in one', (messages) => messages.consumeFused)

/** Claims up to `size` in one call, handles them, and acks them in another. */
export const byHand = productOf('by hand', (messages) => messages.consume)

/** All that is enqueued in one turn shares a call. */
export const byHandGrouped: Product = {
  ...byHand,
  name: 'by hand, a turn in one call',
  async connect(address) {
    const connection = await byHand.connect(address)
    return { ...connection, open: async (queue) => grouped(await connection.open(queue)) }
  },
}

function productOf(name: string, consumeOf: (messages: Messages) => Consume<readonly Payload[]>): Product {
  return {
    name,
    batches: true,
    async connect(address) {
      const client = new Redis({ ...address, scripts: { messages: { lua: SCRIPT, numberOfKeys: KEYS } } })
      await client.ping()
      return {
        open: async (queue) => {
          const messages = new Messages(client as Scripted, queue)
          return messages.store(consumeOf(messages))
        },
        close: async () => client.disconnect(),
      }
    },
  }
}

class Messages {
  readonly #client: Scripted
  readonly #keys: readonly string[]

  constructor(client: Scripted, queue: string) {
    this.#client = client
    this.#keys = ['ready', 'payloads', 'claims', 'fences'].map((name) => `{${queue}}:${name}`)
  }

  store(consumeBatches: Consume<readonly Payload[]>): Store {
    return {
      enqueue: (payload) => this.#call('enqueue', JSON.stringify(payload)),
      enqueueAll: (payloads) => this.#call('enqueue', ...payloads.map((payload) => JSON.stringify(payload))),
      consume: (size, handler, signal) =>
        consumeBatches(size, async (payloads) => void (await Promise.all(payloads.map(handler))), signal),
      consumeBatches,
      claim: async () => {
        const claims = await this.#claim(1)
        if (claims.length === 0) throw new Error('nothing is ready')
        return () => this.#claim(0, claims)
      },
    }
  }

  consume: Consume<readonly Payload[]> = async (size, handler, signal) => {
    while (!signal.aborted) {
      const claims = await this.#claim(size)
      if (claims.length === 0) {
        await sleep(POLL_MS)
        continue
      }
      await handler(payloadsOf(claims))
      await this.#claim(0, claims)
    }
  }

  consumeFused: Consume<readonly Payload[]> = async (size, handler, signal) => {
    let claims: Claims = []
    while (!signal.aborted) {
      claims = await this.#claim(size, claims)
      if (claims.length === 0) await sleep(POLL_MS)
      else await handler(payloadsOf(claims))
    }
    await this.#claim(0, claims)
  }

  #claim(size: number, done: Claims = []): Promise<Claims> {
    return this.#call('claim', size, LEASE_MS, ...tokensOf(done))
  }

  #call(...args: readonly (string | number)[]): Promise<Claims> {
    return this.#client.messages(...this.#keys, ...args)
  }
}

function payloadsOf(claims: Claims): Payload[] {
  return claims.flatMap((text, index) => (index % 2 === 1 ? [JSON.parse(text)] : []))
}

function tokensOf(claims: Claims): string[] {
  return claims.filter((_, index) => index % 2 === 0)
}
