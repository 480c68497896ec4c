/** Holds the lock of a file for so many milliseconds. */
import Database from 'better-sqlite3'

const [path = '', ms = '0'] = process.argv.slice(2)
const database = new Database(path, { timeout: 5_000 })
database.exec('BEGIN IMMEDIATE')
process.send?.('held')
setTimeout(() => {
  database.exec('COMMIT')
  database.close()
  process.disconnect()
}, Number(ms))
