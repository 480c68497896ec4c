/** Consumes a queue with eight lanes until it is told to stop, and says which messages it handled. */
import { mergeMap, pipe, Queue } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

export interface Consumed {
  readonly ids: readonly string[]
  readonly released?: { readonly abandoned: number }
}

const [path = ''] = process.argv.slice(2)
const queue = new Queue<string>('shared', { backend: sqliteBackend(path, { durability: 'normal' }) })
const source = queue.source({ credit: 8 })
let ids: string[] = []

pipe(
  source,
  mergeMap(async (delivery) => {
    await new Promise((resolve) => setImmediate(resolve))
    ids.push(delivery.payload)
  }, 8),
).subscribe()

function tell(more: Partial<Consumed> = {}): void {
  process.send?.({ ids, ...more })
  ids = []
}

const telling = setInterval(() => ids.length > 0 && tell(), 20)
tell()

process.once('message', async () => {
  const released = await source.stop()
  await queue.close()
  clearInterval(telling)
  tell({ released })
  process.disconnect()
})
