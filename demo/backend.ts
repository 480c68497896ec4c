/**
 * Where the queue of the demo lives: the one place that chooses its backend.
 *
 * A SQLite file for each audited folder, there for as long as the audit of that folder is unfinished: a run that finds
 * one goes on with it, and a run that has come to the end of the audit removes it. The files lie in the cache under the
 * clone's own node_modules, which is writable, ignored by git, private to the clone and still there after a reboot.
 * The audited folder may be somebody else's, and a temporary folder is shared with everybody on the host.
 */
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, realpathSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Backend } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { sqliteBackend } from 'millrace/sqlite'
import type { DemoOptions } from './options.js'

export interface Store {
  readonly backend: Backend
  /** Lets go of the store. A finished audit is forgotten, so that the next run starts afresh. */
  close(finished: boolean): Promise<void>
}

export function openStore({ dir, memory }: Pick<DemoOptions, 'dir' | 'memory'>): Store {
  return memory ? memoryStore() : fileStore(storeFile(dir))
}

/** The file of an audited folder, by whatever path it is reached. */
export function storeFile(dir: string): string {
  const key = createHash('sha256').update(realpathSync(dir)).digest('hex').slice(0, 16)
  return fileURLToPath(new URL(`../node_modules/.cache/millrace-demo/${key}.db`, import.meta.url))
}

function memoryStore(): Store {
  const backend = memoryBackend()
  return { backend, close: async () => void (await backend.close()) }
}

function fileStore(file: string): Store {
  mkdirSync(dirname(file), { recursive: true })
  // A killed process loses nothing. What a power cut may lose are the last audits, and they are made again then.
  const backend = sqliteBackend(file, { durability: 'normal' })
  return {
    backend,
    async close(finished) {
      await backend.close()
      if (finished) forget(file)
    },
  }
}

/**
 * The last connection that is closed takes the log with it. While there is a log, another run shares the file, and it
 * will forget it in its turn.
 */
function forget(file: string): void {
  if (!existsSync(`${file}-wal`)) rmSync(file, { force: true })
}
