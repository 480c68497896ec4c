import { beeQueue } from './bee-queue.js'
import { blmove } from './blmove.js'
import { bullmq } from './bullmq.js'
import { byHand, byHandFused } from './by-hand.js'
import { millrace } from './millrace.js'
import type { Product } from './store.js'

/** The contenders that are there; the one by hand is the ceiling. */
export async function products(): Promise<Product[]> {
  const peers = await Promise.all([bullmq(), beeQueue()])
  return [millrace, byHandFused, ...peers.filter((peer) => peer !== undefined)]
}

/** Finds a contender in another process. */
export async function productNamed(name: string): Promise<Product> {
  const found = [...(await products()), byHand, blmove].find((product) => product.name === name)
  if (found === undefined) throw new Error(`no product ${name}`)
  return found
}
