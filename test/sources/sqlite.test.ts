import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import type { Backend } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'
import { conformance } from 'millrace/testing'
import { afterAll, describe, it } from 'vitest'

const folder = mkdtempSync(join(tmpdir(), 'millrace-sqlite-'))
const paths = new Map<Backend, string>()
let files = 0

afterAll(() => rmSync(folder, { recursive: true }))

conformance({
  name: 'sqlite',
  backend: () => {
    files += 1
    return opened(join(folder, `${files}.db`))
  },
  another: (backend) => opened(pathOf(backend)),
  leftovers: async (backend, queue) => {
    const database = new Database(pathOf(backend), { readonly: true })
    try {
      const sql = `SELECT m.id FROM millrace_messages m JOIN millrace_queues q ON q.id = m.queue WHERE q.name = ?`
      return (database.prepare(sql).all(queue) as { id: string }[]).map(({ id }) => id)
    } finally {
      database.close()
    }
  },
  describe,
  it,
})

/** What a crash of the process can lose does not depend on the durability, so the tests need not wait for the disk. */
function opened(path: string): Backend {
  const backend = sqliteBackend(path, { durability: 'normal' })
  paths.set(backend, path)
  return backend
}

function pathOf(backend: Backend): string {
  return paths.get(backend) as string
}
