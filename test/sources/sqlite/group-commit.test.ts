/** What is asked in one turn is one transaction, and what fails in it fails alone. */
import { readFileSync } from 'node:fs'
import { BackendError, LimitError } from 'millrace'
import { describe, expect, it, vi } from 'vitest'
import type { Claim } from '../../../src/driver.js'
import { type Client, clientOn, connect, expectWhole, freshPath } from './rig.js'

/** The commits in the write-ahead log: the frames that say how large the database is after them. */
function commits(path: string): number {
  const log = readFileSync(`${path}-wal`)
  const frameBytes = 24 + log.readUInt32BE(8)
  const salt = log.subarray(16, 24)
  let found = 0
  for (let at = 32; at + frameBytes <= log.length; at += frameBytes) {
    if (!log.subarray(at + 8, at + 16).equals(salt)) break
    if (log.readUInt32BE(at + 4) > 0) found += 1
  }
  return found
}

/** Lets each look at the clock find it so much later: a busy machine would cut a turn into slices. */
function timeGoes(stepMs: number): void {
  let now = performance.now()
  vi.spyOn(performance, 'now').mockImplementation(() => {
    now += stepMs
    return now
  })
}

/** Statements that go wrong when a message of the id `poison` is stored, each in another way. */
const POISON = {
  'a refused statement': `CREATE TRIGGER poison BEFORE INSERT ON millrace_messages WHEN NEW.id = 'poison'
    BEGIN SELECT RAISE(ABORT, 'poison'); END`,
  'a statement that ends halfway': `CREATE TRIGGER poison AFTER INSERT ON millrace_messages WHEN NEW.id = 'poison'
    BEGIN SELECT RAISE(FAIL, 'poison'); END`,
  'a transaction that SQLite itself rolls back': `CREATE TRIGGER poison AFTER INSERT ON millrace_messages
    WHEN NEW.id = 'poison' BEGIN SELECT RAISE(ROLLBACK, 'poison'); END`,
  'a commit that is refused': `CREATE TABLE parents (id TEXT PRIMARY KEY);
    CREATE TABLE children (id TEXT REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED);
    CREATE TRIGGER poison AFTER INSERT ON millrace_messages WHEN NEW.id = 'poison'
    BEGIN INSERT INTO children VALUES ('poison'); END`,
}

async function poisoned(kind: keyof typeof POISON): Promise<{ client: Client; path: string }> {
  const path = freshPath()
  const client = clientOn(path)
  await client.enqueue('first')
  connect(path).exec(POISON[kind])
  return { client, path }
}

/** Asks for 54 things in one turn; the last of them are the stats. */
async function askMuch(client: Client, claim: Claim) {
  const asked = [
    ...Array.from({ length: 50 }, (_, index) => client.enqueue(`${index}`)),
    client.ack(claim),
    client.claim(10),
    client.driver.pause(),
    client.stats(),
  ]
  return (await Promise.all<unknown>(asked)).at(-1)
}

describe('one turn', () => {
  it('S2 is one transaction, whatever is asked in it', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue('a', 'b')
    const claim = await client.one()
    const before = commits(path)
    timeGoes(0)
    const stats = await askMuch(client, claim)
    expect(commits(path) - before).toBe(1)
    expect(stats).toMatchObject({ ready: 41, claimed: 10, ackedTotal: 1 })
  })

  it('S12 that lasts too long goes on in the next one, and what is asked then is behind it', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue('a', 'b')
    const claim = await client.one()
    const before = commits(path)
    timeGoes(2)
    const stats = await askMuch(client, claim)
    expect(commits(path) - before).toBeGreaterThan(20)
    expect(stats).toMatchObject({ ready: 41, claimed: 10, ackedTotal: 1 })
  })

  it('S2 that changes nothing writes nothing', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue('a')
    await client.claim()
    const before = readFileSync(`${path}-wal`)
    for (let index = 0; index < 20; index += 1) {
      expect(await client.claim()).toEqual([])
      await client.stats()
    }
    expect(readFileSync(`${path}-wal`).equals(before)).toBe(true)
  })

  it('S2 its steps happen in the order in which they were asked', async () => {
    const client = clientOn(freshPath())
    const [, first, , second, stats] = await Promise.all([
      client.enqueue('a'),
      client.claim(9),
      client.enqueue('b'),
      client.claim(9),
      client.stats(),
    ])
    expect(first.map(({ id }) => id)).toEqual(['a'])
    expect(second.map(({ id }) => id)).toEqual(['b'])
    expect(stats).toMatchObject({ ready: 0, claimed: 2 })
  })
})

describe('a step that fails', () => {
  it.each(Object.keys(POISON) as (keyof typeof POISON)[])('S2 fails alone: %s', async (kind) => {
    const { client, path } = await poisoned(kind)
    const [before, claims, fails, batch, after, stats] = await Promise.allSettled([
      client.enqueue('a', 'b'),
      client.claim(1),
      client.enqueue('poison'),
      client.enqueue('c', 'd', 'poison', 'e'),
      client.enqueue('f'),
      client.stats(),
    ])
    expect(before).toMatchObject({ status: 'fulfilled', value: ['enqueued', 'enqueued'] })
    expect(claims).toMatchObject({ value: [{ id: 'first', deliveryCount: 1, attempt: 1 }] })
    for (const failed of [fails, batch]) expect((failed as PromiseRejectedResult).reason).toBeInstanceOf(BackendError)
    expect(after).toMatchObject({ status: 'fulfilled', value: ['enqueued'] })
    expect(stats).toMatchObject({ value: { ready: 3, claimed: 1, enqueuedTotal: 4 } })
    expect((await client.claim(9)).map(({ id }) => id)).toEqual(['a', 'b', 'f'])
    expectWhole(connect(path))
  })

  it('S2 a refusal is no failure: the others share its transaction', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.driver.configure({
      limits: { maxLength: 2, maxBytes: null, maxPayloadBytes: 8, whenFull: 'reject' },
    })
    const before = commits(path)
    timeGoes(0)
    const [a, large, b, tooMany] = await Promise.allSettled([
      client.enqueue('a'),
      client.enqueue('x', { id: 'large', bytes: new Uint8Array(9) }),
      client.enqueue('b'),
      client.enqueue('c'),
    ])
    expect([a?.status, b?.status]).toEqual(['fulfilled', 'fulfilled'])
    expect((large as PromiseRejectedResult).reason).toBeInstanceOf(LimitError)
    expect((tooMany as PromiseRejectedResult).reason).toMatchObject({ code: 'ERR_MILLRACE_QUEUE_FULL' })
    expect(commits(path) - before).toBe(1)
    expect(await client.stats()).toMatchObject({ ready: 2, enqueuedTotal: 2 })
  })

  it('S2 a batch that is refused after the turn has begun leaves no trace', async () => {
    const { client, path } = await poisoned('a statement that ends halfway')
    await expect(client.enqueue('a', 'b', 'poison')).rejects.toBeInstanceOf(BackendError)
    expect(await client.stats()).toMatchObject({ ready: 1, enqueuedTotal: 1 })
    expect(await client.enqueue('a', 'b')).toEqual(['enqueued', 'enqueued'])
    expectWhole(connect(path))
  })
})
