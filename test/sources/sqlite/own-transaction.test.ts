/** Enqueues and acks in transactions of the caller's own. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import {
  type Delivery,
  InvalidOptionError,
  mergeMap,
  PayloadError,
  pipe,
  Queue,
  QueueFullError,
  type QueueOptions,
  run,
  SchemaError,
  type SourceEvent,
} from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'
import { afterEach, beforeEach, expect, it } from 'vitest'

let folder: string
let db: Database.Database
let queues: Queue<string>[]

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-own-'))
  db = new Database(join(folder, 'app.db'))
  db.pragma('journal_mode = WAL')
  db.exec('CREATE TABLE effects (name TEXT)')
  queues = []
})

afterEach(async () => {
  await Promise.all(queues.map((queue) => queue.close({ graceMs: 0 })))
  db.close()
  rmSync(folder, { recursive: true })
})

function opened(options: Partial<QueueOptions<string>> = {}): Queue<string> {
  const queue = new Queue<string>('own', { backend: sqliteBackend(db, { durability: 'normal' }), ...options })
  queues.push(queue)
  return queue
}

async function held(queue: Queue<string>): Promise<Delivery<string>> {
  const delivery = await queue.receive({ timeoutMs: 5_000 })
  if (delivery === undefined) throw new Error('nothing came')
  return delivery
}

const effect = (name: string) => db.prepare('INSERT INTO effects VALUES (?)').run(name)
const effects = () => (db.prepare('SELECT name FROM effects').all() as { name: string }[]).map(({ name }) => name)

/** Runs `work` in a transaction that is rolled back. */
function rolledBack(work: () => void): void {
  const undo = new Error('undo')
  expect(() =>
    db.transaction(() => {
      work()
      throw undo
    })(),
  ).toThrow(undo)
}

it('a message is stored with the rows of its transaction, in a file that had no queue before', async () => {
  const queue = opened()
  const stored = db.transaction(() => {
    effect('order')
    return queue.enqueueIn(db, 'order', { id: 'a', priority: 3, headers: { trace: '1' } })
  })()
  expect(stored).toEqual({ id: 'a', status: 'enqueued' })
  const delivery = await held(queue)
  expect([delivery.payload, delivery.priority, delivery.headers]).toEqual(['order', 3, { trace: '1' }])
  expect(await delivery.ack()).toBe('settled')
  expect(queue.enqueueIn(db, 'order', { id: 'a' }).status).toBe('duplicate')
})

it('a message goes with its transaction when that is rolled back, and so do the settings of a new queue', async () => {
  const queue = opened({ limits: { maxLength: 1 } })
  rolledBack(() => {
    effect('order')
    queue.enqueueIn(db, 'order')
  })
  expect(effects()).toEqual([])
  expect(queue.enqueueIn(db, 'again').status).toBe('enqueued')
  expect(() => queue.enqueueIn(db, 'one more')).toThrow(QueueFullError)
  expect((await held(queue)).payload).toBe('again')
})

it('a consumer that waits is woken by the commit of another connection', async () => {
  const queue = opened()
  await queue.stats()
  const waiting = queue.receive({ timeoutMs: 10_000 })
  db.transaction(() => queue.enqueueIn(db, 'x'))()
  expect((await waiting)?.payload).toBe('x')
})

it('what refuses an enqueue throws by name, changes nothing, and leaves the transaction usable', async () => {
  const queue = opened({ limits: { maxLength: 1, maxPayloadBytes: 20 } })
  db.transaction(() => {
    queue.enqueueIn(db, 'first')
    expect(() => queue.enqueueIn(db, 'second')).toThrow(QueueFullError)
    expect(() => queue.enqueueIn(db, 'x'.repeat(30))).toThrow(/maxPayloadBytes/)
    expect(() => queue.enqueueIn(db, 1n as unknown as string)).toThrow(PayloadError)
    expect(() => queue.enqueueIn(db, 'x', { priority: 1.5 })).toThrow(/enqueueIn\.priority/)
    effect('kept')
  })()
  expect(effects()).toEqual(['kept'])
  expect((await queue.stats()).ready).toBe(1)
})

it('a schema is checked; one that answers later is refused', () => {
  const schema = (validate: (value: unknown) => never) => ({
    '~standard': { version: 1 as const, vendor: 'test', validate },
  })
  const strict = opened({ schema: schema(() => ({ issues: [{ message: 'no' }] }) as never) })
  expect(() => strict.enqueueIn(db, 'x')).toThrow(SchemaError)
  const late = opened({ schema: schema((value) => Promise.resolve({ value }) as never) })
  expect(() => late.enqueueIn(db, 'x')).toThrow(/validates at once/)
})

it('only a connection to the same file is taken', async () => {
  const queue = opened()
  const other = new Database(join(folder, 'other.db'))
  const memory = new Database(':memory:')
  try {
    for (const connection of [other, memory, {}, null, 'app.db'])
      expect(() => queue.enqueueIn(connection as object, 'x')).toThrow(InvalidOptionError)
    expect(other.prepare('SELECT count(*) AS n FROM sqlite_schema').get()).toEqual({ n: 0 })
  } finally {
    other.close()
    memory.close()
  }
})

it('an ack is committed with the writes of its handler', async () => {
  const queue = opened()
  await queue.enqueue('a', { id: 'a' })
  const delivery = await held(queue)
  db.transaction(() => {
    effect('done')
    expect(delivery.ackIn(db, { at: 1 })).toBe('settled')
    expect(delivery.ackIn(db)).toBe('already-settled')
  })()
  expect(delivery.settled).toBe(true)
  expect(await queue.outcome('a')).toEqual({ state: 'done', result: { at: 1 } })
  expect(await delivery.ack()).toBe('already-settled')
  expect(await queue.stats()).toMatchObject({ claimed: 0, ackedTotal: 1 })
})

it('an ack that is rolled back leaves the claim, which can be settled at once', async () => {
  const queue = opened()
  await queue.enqueue('a')
  const delivery = await held(queue)
  rolledBack(() => expect(delivery.ackIn(db)).toBe('settled'))
  expect(await delivery.requeue()).toBe('settled')
  const again = await held(queue)
  expect([again.attempt, again.payload]).toEqual([2, 'a'])
  rolledBack(() => again.ackIn(db))
  await expect.poll(() => again.settled).toBe(false)
  expect(again.signal.aborted).toBe(false)
  expect(await again.ack()).toBe('settled')
})

it('an ack is made anew in a transaction that follows one that was rolled back', async () => {
  const queue = opened()
  await queue.enqueue('a')
  const delivery = await held(queue)
  rolledBack(() => delivery.ackIn(db))
  db.transaction(() => {
    effect('done')
    expect(delivery.ackIn(db)).toBe('settled')
  })()
  expect(db.prepare('SELECT ackedTotal AS n FROM millrace_queues').get()).toEqual({ n: 1 })
  expect(await queue.stats()).toMatchObject({ claimed: 0, ackedTotal: 1 })
  expect(await delivery.ack()).toBe('already-settled')
})

it('an ack of a claim that is gone is stale, and the handler can undo its writes', async () => {
  const queue = opened()
  await queue.enqueue('a')
  const delivery = await held(queue)
  await queue.purge({ state: 'claimed' })
  rolledBack(() => {
    effect('done')
    expect(delivery.ackIn(db)).toBe('stale')
  })
  expect(delivery.signal.aborted).toBe(true)
  expect(effects()).toEqual([])
})

it('a pipeline counts such acks as its own, and a rolled back one as the failure that it was', async () => {
  const queue = opened({ maxDeliveries: 1 })
  await queue.enqueueAll(['good', 'bad', 'good'].map((payload) => ({ payload })))
  const source = queue.source({ until: 'empty' })
  const events: SourceEvent['type'][] = []
  source.events.subscribe(({ type }) => events.push(type))
  const summary = await run(
    pipe(
      source,
      mergeMap(async (delivery) => {
        db.transaction(() => {
          effect(delivery.payload)
          delivery.ackIn(db)
          if (delivery.payload === 'bad') throw new Error('undo')
        })()
      }, 2),
    ),
  )
  expect(summary).toMatchObject({ acked: 2, deadLettered: 1, lost: 0, abandoned: 0 })
  expect(effects()).toEqual(['good', 'good'])
  expect(await queue.stats()).toMatchObject({ ackedTotal: 2, dead: 1, claimed: 0 })
  expect(events).not.toContain('lease-lost')
})

it('a loop goes on after such acks, also when it is left right after one', async () => {
  const queue = opened()
  await queue.enqueueAll(['a', 'b', 'c'].map((payload) => ({ payload })))
  const seen: string[] = []
  for await (const delivery of queue.source()) {
    seen.push(delivery.payload)
    db.transaction(() => delivery.ackIn(db))()
    if (seen.length === 2) break
  }
  expect(seen).toEqual(['a', 'b'])
  expect(await queue.stats()).toMatchObject({ ready: 1, claimed: 0, ackedTotal: 2 })
})

it('a loop that is left after a rolled back ack gives the message back', async () => {
  const queue = opened()
  await queue.enqueue('a')
  for await (const delivery of queue.source()) {
    rolledBack(() => delivery.ackIn(db))
    break
  }
  expect(await queue.stats()).toMatchObject({ ready: 1, claimed: 0, ackedTotal: 0 })
})

it('without a transaction of the caller each runs in one of its own', async () => {
  const queue = opened()
  queue.enqueueIn(db, 'a')
  expect((await held(queue)).ackIn(db)).toBe('settled')
  expect(await queue.stats()).toMatchObject({ ready: 0, claimed: 0, ackedTotal: 1 })
})

it('a database in memory carries both', async () => {
  const memory = new Database(':memory:')
  const queue = new Queue<string>('own', { backend: sqliteBackend(memory) })
  queues.push(queue)
  await queue.stats()
  const waiting = held(queue)
  memory.transaction(() => queue.enqueueIn(memory, 'a'))()
  const delivery = await waiting
  memory.transaction(() => delivery.ackIn(memory))()
  expect(await queue.stats()).toMatchObject({ claimed: 0, ackedTotal: 1 })
  expect(memory.open).toBe(true)
})
