/** The demo as users run it: a process of its own. */
import { type ChildProcess, spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { storeFile } from '../../demo/backend.js'
import { tempTree } from './temp-tree.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

export interface Ended {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

export interface Demo {
  readonly child: ChildProcess
  readonly ended: Promise<Ended>
}

export function startDemo(...args: readonly string[]): Demo {
  const child = spawn(process.execPath, ['--import', 'tsx', 'demo/main.ts', ...args], { cwd: ROOT })
  const ended = endOf(child)
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await ended
  })
  return { child, ended }
}

/** Fulfils when what a demo says from now on matches; rejects when it ends without. */
export function says(stream: Readable | null, pattern: RegExp): Promise<void> {
  return new Promise((resolve, reject) => {
    let text = ''
    stream?.on('data', (chunk) => {
      text += chunk
      if (pattern.test(text)) resolve()
    })
    stream?.once('close', () => reject(new Error(`${pattern} does not match ${JSON.stringify(text)}`)))
  })
}

/** A folder to audit. What the demo has stored about it goes with it after the test. */
export function auditedTree(files: Readonly<Record<string, string | object>>): string {
  const dir = tempTree(files)
  const file = storeFile(dir)
  onTestFinished(() => {
    for (const suffix of ['', '-wal', '-shm']) rmSync(`${file}${suffix}`, { force: true })
  })
  return dir
}

/** Enough packages that a signal sent at the first tenth comes long before the last. */
export function largeTree(): string {
  const files: Record<string, string | object> = {}
  for (let index = 0; index < 1_500; index += 1) {
    files[`p${index}/package.json`] = { name: `p${index}`, license: 'MIT' }
    files[`p${index}/lib/a.js`] = ''
  }
  return auditedTree(files)
}

/** The numbers of the last line. */
export function accountOf(out: string): { found: number; audited: number; refused: number; left: number } {
  const numbers = /^(\d+) found: (\d+) audited, (\d+) dead letters, (\d+) left$/m.exec(out)?.slice(1).map(Number)
  const [found = NaN, audited = NaN, refused = NaN, left = NaN] = numbers ?? []
  return { found, audited, refused, left }
}

function endOf(child: ChildProcess): Promise<Ended> {
  let out = ''
  let err = ''
  child.stdout?.on('data', (chunk) => (out += chunk))
  child.stderr?.on('data', (chunk) => (err += chunk))
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, out, err })))
}
