/** What a number means nothing without: where, on what, with which versions, carrying what, kept how safely, when. */
import { existsSync, readFileSync } from 'node:fs'
import { cpus, release, type } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Bench } from './runner.js'

export function headerOf({ title, payload, durability, packages, notes = [] }: Bench, now = new Date()): string {
  const lines = [
    ['host', `${cpus()[0]?.model.trim() ?? 'unknown CPU'}, ${cpus().length} cores, ${type()} ${release()}`],
    ['node', process.version],
    ['packages', packages.map((name) => `${name} ${versionOf(name)}`).join(', ')],
    ['payload', payload],
    ['durability', durability],
    ['date', now.toISOString().slice(0, 10)],
    ...notes.map((note) => ['note', note] as const),
  ] as const
  return [`# ${title}`, '', ...lines.map(([name, value]) => `${name.padEnd(10)}  ${value}`)].join('\n')
}

/** Read from the file, because not every package exports its manifest. Our own is found by its name. */
function versionOf(name: string): string {
  const own = dirname(fileURLToPath(import.meta.url))
  for (let folder = own; dirname(folder) !== folder; folder = dirname(folder)) {
    const found = manifestIn(folder)
    if (found?.name === name) return found.version
    const installed = manifestIn(join(folder, 'node_modules', name))
    if (installed) return installed.version
  }
  return manifestIn(join(own, 'peers', 'node_modules', name))?.version ?? '(not installed)'
}

function manifestIn(folder: string): { name: string; version: string } | undefined {
  const path = join(folder, 'package.json')
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : undefined
}
