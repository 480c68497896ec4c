import { byHand } from './by-hand.js'
import { liteque } from './liteque.js'
import { millrace } from './millrace.js'
import { plainjob } from './plainjob.js'
import type { Product } from './store.js'

/** The contenders that are there. */
export async function products(): Promise<Product[]> {
  const peers = await Promise.all([plainjob(), liteque()])
  return [millrace, byHand, ...peers.filter((peer) => peer !== undefined)]
}
