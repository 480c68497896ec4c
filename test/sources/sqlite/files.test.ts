/** Files that cannot be used: a typed error at first use, nothing in them changed, and all is well when the cause is gone. */
import { mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Backend, BackendError, BackendUnavailableError, StoreVersionError } from 'millrace'
import { describe, expect, it } from 'vitest'
import { MIGRATIONS } from '../../../src/sources/sqlite/schema.js'
import { backendOn, Client, clientOn, connect, expectWhole, freshPath, queueOn } from './rig.js'

/** Every way to ask: each rejects, and none answers that there is nothing. */
async function refusals(backend: Backend): Promise<Error[]> {
  const queue = queueOn(backend, {}, 'refused')
  const asked = [
    queue.enqueue('a'),
    queue.enqueueAll([{ payload: 'a' }]),
    queue.tryReceive(),
    queue.receive({ timeoutMs: 2_000 }),
    queue.tryTake(),
    queue.stats(),
    queue.size(),
    queue.outcome('a', { timeoutMs: 0 }),
    queue.cancel('a'),
    queue.purge(),
    queue.pause(),
    queue.peek()[Symbol.asyncIterator]().next(),
    queue.source({ until: 'empty' })[Symbol.asyncIterator]().next(),
  ]
  const answers = await Promise.allSettled<unknown>(asked)
  return answers.map((answer) => {
    if (answer.status === 'fulfilled') throw new Error(`answered ${JSON.stringify(answer.value)}`)
    return answer.reason as Error
  })
}

async function expectRefused(backend: Backend, path: string, problem: string): Promise<void> {
  for (const error of await refusals(backend)) {
    expect(error).toBeInstanceOf(BackendError)
    expect(error).not.toBeInstanceOf(BackendUnavailableError)
    expect(error.message).toContain(path)
    expect(error.message).toContain(problem)
  }
}

async function expectUsable(backend: Backend): Promise<void> {
  const queue = queueOn(backend, {}, 'used')
  await queue.enqueue('a')
  const delivery = await queue.tryReceive()
  expect(delivery?.payload).toBe('a')
  expect(await delivery?.ack()).toBe('settled')
}

describe('what is no database', () => {
  it('S10 a file of something else is left as it is', async () => {
    const path = freshPath()
    const text = 'This is a letter and no database.\n'.repeat(400)
    writeFileSync(path, text)
    const backend = backendOn(path)
    await expectRefused(backend, path, 'is not a SQLite database')
    expect(readFileSync(path, 'utf8')).toBe(text)
    rmSync(path)
    await expectUsable(backend)
  })

  it('S10 a directory', async () => {
    const path = freshPath()
    mkdirSync(path)
    const backend = backendOn(path)
    await expectRefused(backend, path, 'cannot be opened')
    rmSync(path, { recursive: true })
    await expectUsable(backend)
  })

  it('S10 a folder that is not there', async () => {
    const path = `${freshPath()}/deeper/queues.db`
    const backend = backendOn(path)
    await expectRefused(backend, path, 'directory does not exist')
    mkdirSync(dirname(path), { recursive: true })
    await expectUsable(backend)
  })

  it('S10 a database whose pages are damaged answers with an error, never with nothing', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue(...Array.from({ length: 200 }, (_, index) => ({ id: `${index}`, bytes: new Uint8Array(500) })))
    await client.backend.close()
    const whole = readFileSync(path)
    truncateSync(path, 8_192)
    const backend = backendOn(path)
    await expectRefused(backend, path, 'is damaged')
    await backend.close()
    writeFileSync(path, whole)
    expect(await clientOn(path).claim(1_000)).toHaveLength(200)
  })

  it('S10 an empty file becomes a database', async () => {
    const path = freshPath()
    writeFileSync(path, '')
    await expectUsable(backendOn(path))
  })
})

describe('a database that may not be written', () => {
  it('S10 one that the caller opened read-only is read-only for us, and loses nothing', async () => {
    const path = freshPath()
    const writer = clientOn(path)
    await writer.enqueue('a', 'b')
    const backend = backendOn(connect(path, { readonly: true }))
    await expectRefused(backend, path, 'cannot be written to')
    expect(await writer.stats()).toMatchObject({ ready: 2, enqueuedTotal: 2 })
  })

  it('S10 one that the caller opened read-only and that has no tables of ours', async () => {
    const path = freshPath()
    connect(path).exec('CREATE TABLE mine (a)')
    await expectRefused(backendOn(connect(path, { readonly: true })), path, 'cannot be written to')
    expect(connect(path).prepare('SELECT name FROM sqlite_schema').all()).toEqual([{ name: 'mine' }])
  })
})

describe('tables of somebody else', () => {
  it.each([
    ['millrace_messages', 'CREATE TABLE millrace_messages (a, b); INSERT INTO millrace_messages VALUES (1, 2)'],
    ['millrace_meta', 'CREATE TABLE millrace_meta (key, value); INSERT INTO millrace_meta VALUES (1, 2)'],
    ['millrace_meta', 'CREATE TABLE millrace_meta (version INTEGER)'],
    ['millrace_queues', 'CREATE VIEW millrace_queues AS SELECT 1 AS version'],
    ['millrace_ready', 'CREATE TABLE t (a); CREATE INDEX millrace_ready ON t (a)'],
  ])('S10 %s is named and left as it is: %s', async (table, sql) => {
    const path = freshPath()
    const owner = connect(path)
    owner.exec(sql)
    const before = readFileSync(path)
    await expectRefused(backendOn(path), path, `has a table ${table} that is none of ours`)
    // Not even the mode of its log.
    expect(readFileSync(path).equals(before)).toBe(true)
  })

  it('S10 other tables are kept beside ours, and the caller may use its connection meanwhile', async () => {
    const path = freshPath()
    const owner = connect(path)
    owner.exec('CREATE TABLE orders (id); INSERT INTO orders VALUES (1)')
    const client = clientOn(owner)
    await client.enqueue('a')
    owner.exec('INSERT INTO orders VALUES (2)')
    expect((await client.claim()).map(({ id }) => id)).toEqual(['a'])
    await client.backend.close()
    expect(owner.open).toBe(true)
    expect(owner.prepare('SELECT count(*) AS n FROM orders').get()).toEqual({ n: 2 })
    expectWhole(owner)
  })
})

describe('a database of another version', () => {
  it('S10, N88 a newer one is refused loudly, and is not touched', async () => {
    const path = freshPath()
    await clientOn(path).enqueue('a')
    const owner = connect(path)
    owner.exec('UPDATE millrace_meta SET version = 99')
    const backend = backendOn(path)
    for (const error of await refusals(backend)) {
      expect(error).toBeInstanceOf(StoreVersionError)
      expect(error.message).toContain('99')
    }
    expect(owner.prepare('SELECT version FROM millrace_meta').get()).toEqual({ version: 99 })
    owner.exec(`UPDATE millrace_meta SET version = ${MIGRATIONS.length}`)
    await expectUsable(backend)
    expect((await new Client(backend).claim()).map(({ id }) => id)).toEqual(['a'])
  })
})

describe('a path', () => {
  it('S10 means the file that it meant when the backend was made, wherever the process goes', async () => {
    const path = freshPath()
    const before = process.cwd()
    let relative: Client
    process.chdir(dirname(path))
    try {
      relative = clientOn('queues.db')
    } finally {
      process.chdir(before)
    }
    await relative.enqueue('a')
    expect(await clientOn(path).claim()).toHaveLength(1)
  })
})
