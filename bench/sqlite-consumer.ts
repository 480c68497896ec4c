/** The other process of the latency scenarios in `sqlite.ts`: tells its parent when a message is handled. */

import { now } from './sqlite/latency.js'
import { products } from './sqlite/products.js'
import type { Durability } from './sqlite/store.js'

const [name, path = '', durability] = process.argv.slice(2)
const product = (await products()).find((each) => each.name === name)
if (product === undefined) throw new Error(`no product ${name}`)

const stop = new AbortController()
process.once('disconnect', () => stop.abort())
const store = await product.open(path, durability as Durability)
const consuming = store.consume(1, async () => void process.send?.(now()), stop.signal)
process.send?.(now())
await consuming
await store.close()
process.exit()
