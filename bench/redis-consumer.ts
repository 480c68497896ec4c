/** The other process of the scenarios in `redis.ts`: consumes when its parent says so, and tells how far it is. */

import type { Answer, Request } from './redis/child.js'
import { productNamed } from './redis/products.js'
import { type Connection, now, type Store } from './redis/store.js'

/** How often it tells, where not of each message. */
const TELL_MS = 10

const [name = '', host = '', port] = process.argv.slice(2)
const product = await productNamed(name)
let connection: Connection | undefined
let store: Store | undefined
let stop = new AbortController()
let consuming: Promise<unknown> = Promise.resolve()
let handled = 0
let lastAt = 0

function tell(answer: Answer): void {
  process.send?.(answer)
}

async function open(queue: string): Promise<void> {
  connection = await product.connect({ host, port: Number(port) })
  store = await connection.open(queue)
  handled = 0
  tell({ kind: 'opened' })
}

function consume(size: number, each: boolean): void {
  stop = new AbortController()
  const progress = () => tell({ kind: 'progress', handled, at: lastAt })
  const handler = async () => {
    handled += 1
    lastAt = now()
    if (each) progress()
  }
  const telling = setInterval(progress, TELL_MS)
  if (each) clearInterval(telling)
  consuming = (store?.consume(size, handler, stop.signal) ?? Promise.resolve()).finally(() => clearInterval(telling))
  tell({ kind: 'progress', handled, at: now() })
}

async function end(): Promise<void> {
  stop.abort()
  await consuming
  await connection?.close()
  tell({ kind: 'stopped', at: lastAt })
}

function memory(): void {
  globalThis.gc?.()
  const { rss, heapUsed } = process.memoryUsage()
  tell({ kind: 'memory', rss, heap: heapUsed })
}

async function answer(request: Request): Promise<void> {
  if (request.kind === 'open') await open(request.queue)
  else if (request.kind === 'consume') consume(request.size, request.each)
  else if (request.kind === 'stop') await end()
  else memory()
}

process.on('message', (request: Request) => void answer(request))
// Over the timers that a peer leaves behind.
process.once('disconnect', () => process.exit())
tell({ kind: 'ready' })
