/** Folders with files, for one test. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { onTestFinished } from 'vitest'

/** Writes files by their path in a new folder, which is gone after the test. Objects are written as JSON. */
export function tempTree(files: Readonly<Record<string, string | object>>): string {
  const root = mkdtempSync(join(tmpdir(), 'millrace-demo-'))
  onTestFinished(() => rmSync(root, { recursive: true, force: true }))
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), typeof content === 'string' ? content : JSON.stringify(content))
  }
  return root
}
