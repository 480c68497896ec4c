/**
 * The recipe that everybody writes: a transaction to put a message in, one to claim it with a compare on the key that was
 * seen at the head, one to ack it. Claims are under a lease. A read of the head serves all handlers that are free, which
 * is more than most do.
 */
import { randomUUID } from 'node:crypto'
import { Etcd3, type Lease } from 'etcd3'
import type { Consume, Payload } from '../messages.js'
import { LEASE_MS, type Product, type Store } from './store.js'

/** How many puts of a filling share a transaction. */
const GROUP = 100

export const recipe: Product = {
  name: 'one transaction per message',
  async connect(url) {
    const client = new Etcd3({ hosts: url })
    const lease = client.lease(LEASE_MS / 1_000)
    await lease.grant()
    return {
      open: async (queue) => new Recipe(client, lease, queue),
      close: async () => {
        await lease.revoke()
        client.close()
      },
    }
  },
}

class Recipe implements Store {
  readonly #client: Etcd3
  readonly #lease: Lease
  readonly #ready: string
  readonly #claimed: string
  #count = 0

  constructor(client: Etcd3, lease: Lease, queue: string) {
    this.#client = client
    this.#lease = lease
    this.#ready = `${queue}/ready/`
    this.#claimed = `${queue}/claimed/`
  }

  async enqueue(payload: Payload): Promise<unknown> {
    const key = this.#nextKey()
    return this.#client
      .if(key, 'Create', '==', 0)
      .then(this.#client.put(key).value(JSON.stringify(payload)))
      .commit()
  }

  async enqueueAll(payloads: readonly Payload[]): Promise<unknown> {
    for (let at = 0; at < payloads.length; at += GROUP) {
      const puts = payloads
        .slice(at, at + GROUP)
        .map((payload) => this.#client.put(this.#nextKey()).value(JSON.stringify(payload)))
      await this.#client
        .if(this.#nextKey(), 'Create', '==', 0)
        .then(...puts)
        .commit()
    }
    return undefined
  }

  consume: Consume<Payload> = async (size, handler, signal) => {
    const watcher = await this.#client.watch().prefix(this.#ready).create()
    const bell = new Bell()
    watcher.on('put', () => bell.ring())
    signal.addEventListener('abort', () => bell.ring(), { once: true })
    const lanes = new Lanes(size)
    while (!signal.aborted) {
      await lanes.free()
      const rung = bell.next()
      const heads = await this.#client.getAll().prefix(this.#ready).limit(size).keys()
      const taken = heads.filter((key) => lanes.take(key, () => this.#work(key, handler)))
      if (taken.length === 0 && !signal.aborted) await Promise.race([rung, lanes.changed()])
    }
    await lanes.empty()
    await watcher.cancel()
  }

  async #work(key: string, handler: (payload: Payload) => Promise<void>): Promise<void> {
    const claimed = this.#claimed + key.slice(this.#ready.length)
    const claim = await this.#client
      .if(key, 'Version', '==', 1)
      .then(this.#client.get(key), this.#client.delete().key(key), this.#lease.put(claimed).value(''))
      .commit()
    if (!claim.succeeded) return
    const value = claim.responses[0]?.response_range?.kvs[0]?.value
    await handler(JSON.parse(String(value)))
    await this.#client.if(claimed, 'Version', '==', 1).then(this.#client.delete().key(claimed)).commit()
  }

  #nextKey(): string {
    this.#count += 1
    return `${this.#ready}${String(Date.now()).padStart(15, '0')}-${String(this.#count).padStart(9, '0')}-${randomUUID()}`
  }
}

/** Rings for whoever began to listen before. */
class Bell {
  #ring = () => {}
  #next = this.#renewed()

  next(): Promise<void> {
    return this.#next
  }

  ring(): void {
    this.#ring()
    this.#next = this.#renewed()
  }

  #renewed(): Promise<void> {
    return new Promise((resolve) => {
      this.#ring = resolve
    })
  }
}

/** So many keys are worked at, each by one. */
class Lanes {
  readonly #size: number
  readonly #held = new Map<string, Promise<void>>()

  constructor(size: number) {
    this.#size = size
  }

  /** Fulfils when one is free. */
  async free(): Promise<void> {
    if (this.#held.size === this.#size) await this.changed()
  }

  /** Whether it is taken: not while all lanes are, nor when somebody has this one. */
  take(key: string, work: () => Promise<void>): boolean {
    if (this.#held.size === this.#size || this.#held.has(key)) return false
    this.#held.set(
      key,
      work().finally(() => this.#held.delete(key)),
    )
    return true
  }

  /** Fulfils when one has become free; never when all are. */
  async changed(): Promise<void> {
    await (this.#held.size === 0 ? new Promise(() => {}) : Promise.race(this.#held.values()))
  }

  async empty(): Promise<void> {
    await Promise.all(this.#held.values())
  }
}
