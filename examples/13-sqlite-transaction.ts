/** An order and its message, a parcel and its ack: each pair in one transaction of the application's own. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import { mergeMap, pipe, Queue, retryLater, run } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

const folder = mkdtempSync(join(tmpdir(), 'millrace-example-'))
const db = new Database(join(folder, 'shop.db'))
db.pragma('journal_mode = WAL')
db.exec('CREATE TABLE orders (sku TEXT); CREATE TABLE parcels (sku TEXT)')
const orders = new Queue<{ sku: string }>('orders', { backend: sqliteBackend(db) })

/** Rolled back, it leaves neither the row nor the message. */
const order = db.transaction((sku: string) => {
  db.prepare('INSERT INTO orders VALUES (?)').run(sku)
  orders.enqueueIn(db, { sku })
  if (sku === '') throw new Error('an order of nothing')
})

for (const sku of ['A-1', '', 'B-2']) {
  try {
    order(sku)
  } catch (error) {
    console.log('refused:', (error as Error).message)
  }
}

let firstTime = true
const pack = db.transaction((sku: string, ack: () => void) => {
  db.prepare('INSERT INTO parcels VALUES (?)').run(sku)
  ack()
  if (sku === 'B-2' && firstTime) {
    firstTime = false
    throw new Error('the tape is stuck')
  }
})

await run(
  pipe(
    orders.source({ until: 'idle' }),
    retryLater({ baseMs: 1 }),
    mergeMap((delivery) => pack(delivery.payload.sku, () => delivery.ackIn(db)), 2),
  ),
)

const count = (table: string) => (db.prepare(`SELECT count(*) AS n FROM ${table}`).get() as { n: number }).n
const { ackedTotal } = await orders.stats()
console.log(`${count('orders')} orders, ${count('parcels')} parcels, ${ackedTotal} acked`)

await orders.close()
db.close()
rmSync(folder, { recursive: true })

// Prints:
// refused: an order of nothing
// 2 orders, 2 parcels, 2 acked
