/** The same transactions by hand: no code between them that a library would need. */

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import Database from 'better-sqlite3'
import { type Consume, grouped, type Payload } from '../messages.js'
import { type Durability, POLL_MS, type Product, type Store } from './store.js'

const LEASE_MS = 30_000

/** Ready is a lease that has lapsed, from the start or since, so that one index finds both. */
const SCHEMA = `
  CREATE TABLE messages (
    seq INTEGER PRIMARY KEY, payload TEXT NOT NULL, token TEXT, leased_until INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0
  );
  CREATE INDEX by_lease ON messages (leased_until);
`
const CLAIM = `
  UPDATE messages SET token = :token, leased_until = :now + ${LEASE_MS}, attempts = attempts + 1
  WHERE seq IN (SELECT seq FROM messages WHERE leased_until <= :now ORDER BY leased_until, seq LIMIT :size)
  RETURNING seq, payload
`

interface Claim {
  readonly token: string
  readonly rows: readonly { readonly seq: number; readonly payload: string }[]
}

/** Claims up to `size` in one transaction, handles them, and acks them in another. */
export const byHand: Product = {
  name: 'by hand',
  batches: true,
  open: (path, durability) => open(path, durability, (messages) => messages.consume),
}

/** Acks and claims the next ones in one transaction: half the commits, as long as there is no pause. */
export const byHandFused: Product = {
  name: 'by hand, ack and next claim in one',
  open: (path, durability) => open(path, durability, (messages) => messages.consumeFused),
}

/** All that is enqueued in one turn shares a transaction. */
export const byHandGrouped: Product = {
  name: 'by hand, a turn in one transaction',
  async open(path, durability) {
    return grouped(await byHand.open(path, durability))
  },
}

async function open(
  path: string,
  durability: Durability,
  consumeOf: (messages: Messages) => Consume<readonly Payload[]>,
): Promise<Store> {
  const database = new Database(path)
  database.pragma('journal_mode = WAL')
  database.pragma(`synchronous = ${durability}`)
  const isNew = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'messages'").get() === undefined
  if (isNew) database.exec(SCHEMA)
  const messages = new Messages(database)
  const consumeBatches = consumeOf(messages)
  return {
    enqueue: async (payload) => messages.insert(payload),
    enqueueAll: async (payloads) => messages.insertAll(payloads),
    consume: (size, handler, signal) =>
      consumeBatches(size, async (payloads) => void (await Promise.all(payloads.map(handler))), signal),
    consumeBatches,
    close: async () => database.close(),
  }
}

class Messages {
  readonly insertAll: (payloads: readonly Payload[]) => void
  readonly #ackAll: (claim: Claim) => void
  readonly #ackAllAndClaim: (claim: Claim, size: number) => Claim
  readonly #insert: Database.Statement
  readonly #claim: Database.Statement
  readonly #ack: Database.Statement

  constructor(database: Database.Database) {
    this.#insert = database.prepare('INSERT INTO messages (payload) VALUES (?)')
    this.#claim = database.prepare(CLAIM)
    this.#ack = database.prepare('DELETE FROM messages WHERE seq = ? AND token = ?')
    this.insertAll = database.transaction((payloads: readonly Payload[]) => {
      for (const payload of payloads) this.insert(payload)
    })
    const ackAll = ({ token, rows }: Claim) => {
      for (const { seq } of rows) this.#ack.run(seq, token)
    }
    this.#ackAll = database.transaction(ackAll)
    this.#ackAllAndClaim = database.transaction((claim: Claim, size: number) => {
      ackAll(claim)
      return this.#claimUpTo(size)
    })
  }

  insert(payload: Payload): void {
    this.#insert.run(JSON.stringify(payload))
  }

  consume: Consume<readonly Payload[]> = async (size, handler, signal) => {
    while (!signal.aborted) {
      const claim = this.#claimUpTo(size)
      if (claim.rows.length === 0) {
        await sleep(POLL_MS)
        continue
      }
      await handler(payloadsOf(claim))
      this.#ackAll(claim)
    }
  }

  consumeFused: Consume<readonly Payload[]> = async (size, handler, signal) => {
    let claim: Claim = { token: '', rows: [] }
    while (!signal.aborted) {
      claim = this.#ackAllAndClaim(claim, size)
      if (claim.rows.length === 0) await sleep(POLL_MS)
      else await handler(payloadsOf(claim))
    }
    this.#ackAll(claim)
  }

  #claimUpTo(size: number): Claim {
    const token = randomUUID()
    return { token, rows: this.#claim.all({ token, size, now: Date.now() }) as Claim['rows'] }
  }
}

function payloadsOf({ rows }: Claim): Payload[] {
  return rows.map(({ payload }) => JSON.parse(payload))
}
