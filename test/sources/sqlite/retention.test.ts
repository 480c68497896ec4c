/** What is over leaves nothing behind but what was asked to be kept. */
import { statSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { until } from '../../support/wait.js'
import { type Client, clientOn, connect, expectWhole, freshPath } from './rig.js'

const KEEP_TEN = { outcomesMs: 3_600_000, maxOutcomes: 10 }

async function runThrough(client: Client, count: number): Promise<void> {
  for (let from = 0; from < count; from += 50) {
    await client.enqueue(
      ...Array.from({ length: 50 }, (_, index) => ({ id: `m${from + index}`, bytes: new Uint8Array(10) })),
    )
    const claims = await client.claim(50)
    await client.driver.settle(
      claims.map(({ id, token }) => ({ kind: 'ack', id, token })),
      client.token(),
    )
  }
}

function rowsOf(path: string): unknown {
  return connect(path).prepare('SELECT count(*) FROM millrace_messages').pluck().get()
}

describe('finished messages', () => {
  it('S13 are forgotten beyond the number that is kept, the newest are known', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.driver.configure({ retention: KEEP_TEN })
    await runThrough(client, 500)
    await client.stats()
    expect(rowsOf(path)).toBe(10)
    expect(await client.driver.outcome('m499', false)).toEqual({ state: 'done' })
    expect(await client.driver.outcome('m480', false)).toEqual({ state: 'unknown' })
    expect(await client.enqueue('m499', 'm480')).toEqual(['duplicate', 'enqueued'])
    expect(await client.stats()).toMatchObject({ ready: 1, ackedTotal: 500, enqueuedTotal: 501 })
    expectWhole(connect(path))
  })

  it('S13 are forgotten when their time is over, by whoever comes by, and their ids are free', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.driver.configure({ retention: { outcomesMs: 30, maxOutcomes: 10_000 } })
    await runThrough(client, 100)
    const other = clientOn(path)
    await until('all are forgotten', async () => {
      await other.stats()
      return rowsOf(path) === 0
    })
    expect(await other.enqueue('m99')).toEqual(['enqueued'])
    expectWhole(connect(path))
  })

  it('S13 a smaller number takes away what is too many, a bounded part at a time', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await runThrough(client, 2_500)
    expect(rowsOf(path)).toBe(2_500)
    await client.driver.configure({ retention: KEEP_TEN })
    expect(rowsOf(path)).toBeGreaterThan(10)
    await until('few are left', async () => {
      await client.stats()
      return rowsOf(path) === 10
    })
    expectWhole(connect(path))
  })

  it('S13 keep nothing of their payload', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue({ id: 'a', key: 'k', headers: { h: '1' }, bytes: new Uint8Array(5_000) })
    await client.ack(await client.one())
    const kept = connect(path).prepare('SELECT bytes, headers, key, progress, consumer FROM millrace_messages').get()
    expect(kept).toEqual({ bytes: null, headers: null, key: null, progress: null, consumer: null })
  })
})

describe('the file', () => {
  it('S13 is one file when the last has let go of it', async () => {
    const path = freshPath()
    const client = clientOn(path)
    const other = clientOn(path)
    await client.enqueue('a')
    await other.stats()
    await client.backend.close()
    expect(statSync(`${path}-wal`, { throwIfNoEntry: false })).toBeDefined()
    await other.backend.close()
    expect(statSync(`${path}-wal`, { throwIfNoEntry: false })).toBeUndefined()
    expect(statSync(`${path}-shm`, { throwIfNoEntry: false })).toBeUndefined()
    expect(rowsOf(path)).toBe(1)
  })
})
