/** A database in memory that the caller has opened, and its connection, which nobody else can have. */
import { BackendError } from 'millrace'
import { describe, expect, it } from 'vitest'
import { backendOn, clientOn, connect, expectWhole, queueOn } from './rig.js'

describe('a database in memory', () => {
  it('S14 is shared with the caller, whose transactions are never joined', async () => {
    const database = connect(':memory:')
    const client = clientOn(database)
    await client.enqueue('a')
    database.exec('CREATE TABLE mine (a); BEGIN; INSERT INTO mine VALUES (1)')
    const asked = client.enqueue('b')
    let turns = 0
    while (turns < 20) {
      await new Promise((resolve) => setImmediate(resolve))
      turns += 1
    }
    expect(database.prepare('SELECT count(*) FROM millrace_messages').pluck().get()).toBe(1)
    database.exec('ROLLBACK')
    expect(await asked).toEqual(['enqueued'])
    expect(database.prepare('SELECT count(*) FROM mine').pluck().get()).toBe(0)
    expect((await client.claim(9)).map(({ id }) => id)).toEqual(['a', 'b'])
    expectWhole(database)
  })

  it('S10 that stays in a transaction of the caller is unavailable, and then works again', async () => {
    const database = connect(':memory:')
    const client = clientOn(database, { busyTimeoutMs: 20 })
    await client.enqueue('a')
    database.exec('BEGIN')
    await expect(client.claim()).rejects.toMatchObject({ code: 'ERR_MILLRACE_BACKEND_UNAVAILABLE' })
    database.exec('COMMIT')
    expect(await client.claim()).toHaveLength(1)
  })

  it('S10 that the caller closes is an error and not an empty queue; it is left open when the backend closes', async () => {
    const database = connect(':memory:')
    const backend = backendOn(database)
    const queue = queueOn(backend)
    await queue.enqueue('a')
    database.close()
    await expect(queue.stats()).rejects.toBeInstanceOf(BackendError)
    await expect(queue.tryReceive()).rejects.toBeInstanceOf(BackendError)
    const other = connect(':memory:')
    await clientOn(other).backend.close()
    expect(other.open).toBe(true)
  })

  it('N58 two backends on it see the same queues, also after one has closed', async () => {
    const database = connect(':memory:')
    const one = clientOn(database)
    await one.enqueue('a')
    const claim = await one.one()
    await one.backend.close()
    const two = clientOn(database)
    expect(await two.stats()).toMatchObject({ claimed: 1 })
    expect(await two.ack(claim)).toBe('acked')
  })

  it('N58 made by the backend lives as long as that, not as long as a queue', async () => {
    const backend = backendOn(':memory:')
    await using first = queueOn(backend)
    await first.enqueue('a')
    await first.close()
    expect((await queueOn(backend).tryReceive())?.payload).toBe('a')
    expect(await queueOn(backendOn(':memory:')).size()).toBe(0)
  })
})
