/** What the SQLite bench asks of each contender: a file of messages that outlives the process. */
import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Consume, Payload } from '../messages.js'

/** What a commit has survived: in WAL `full` syncs every one, with `normal` a power cut may lose the last ones. */
export type Durability = 'full' | 'normal'

/** How often those look that are not woken. Their own defaults are a second, or none. */
export const POLL_MS = 1

/** One open file. */
export interface Store {
  /** One message in a transaction of its own. */
  enqueue(payload: Payload): Promise<unknown>
  /** All in one transaction, or at once by those who cannot. */
  enqueueAll(payloads: readonly Payload[]): Promise<unknown>
  /** `size` handlers at once, or one at a time by those who cannot. Each message is acked when its handler ends. */
  readonly consume: Consume<Payload>
  /** One handler at a time, for up to `size` messages, by those who can. */
  readonly consumeBatches?: Consume<readonly Payload[]>
  close(): Promise<unknown>
}

export interface Product {
  readonly name: string
  /** The most messages of a measured run, for those that would take too long over more. */
  readonly most?: number
  /** How many others are queued in the depth scenario, for those that slow down with them. */
  readonly depths?: readonly number[]
  /** Whether a handler can have several messages. */
  readonly batches?: boolean
  open(path: string, durability: Durability): Promise<Store>
}

/** A store in a folder that is gone when it is closed. */
export interface TemporaryStore extends Store {
  readonly path: string
}

/** What an interrupted bench leaves behind. */
const folders = new Set<string>()
process.once('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

export async function temporaryStore(product: Product, durability: Durability): Promise<TemporaryStore> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  folders.add(folder)
  const remove = async () => {
    await rm(folder, { recursive: true, force: true })
    folders.delete(folder)
  }
  try {
    const path = join(folder, 'queue.db')
    const store = await product.open(path, durability)
    const close = async () => {
      await store.close()
      await remove()
    }
    return { ...store, path, close }
  } catch (error) {
    await remove()
    throw error
  }
}

/** One run on a file of its own. */
export async function withStore<R>(
  product: Product,
  durability: Durability,
  work: (store: TemporaryStore) => Promise<R>,
): Promise<R> {
  const store = await temporaryStore(product, durability)
  try {
    return await work(store)
  } finally {
    await store.close()
  }
}
