/** What a number means nothing without: where, on what, with which versions, carrying what, kept how safely, when. */
import { existsSync, readFileSync } from 'node:fs'
import { cpus, release, type } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Bench } from './runner.js'

export function headerOf({ title, payload, durability, packages }: Bench, now = new Date()): string {
  const lines = [
    ['host', `${cpus()[0]?.model.trim() ?? 'unknown CPU'}, ${cpus().length} cores, ${type()} ${release()}`],
    ['node', process.version],
    ['packages', packages.map((name) => `${name} ${versionOf(name)}`).join(', ')],
    ['payload', payload],
    ['durability', durability],
    ['date', now.toISOString().slice(0, 10)],
  ] as const
  return [`# ${title}`, '', ...lines.map(([name, value]) => `${name.padEnd(10)}  ${value}`)].join('\n')
}

/** Read from the file, because not every package exports its manifest. Our own is found by its name. */
function versionOf(name: string): string {
  let folder = dirname(fileURLToPath(import.meta.url))
  while (true) {
    const own = manifestIn(folder)
    if (own?.name === name) return own.version
    const installed = manifestIn(join(folder, 'node_modules', name))
    if (installed) return installed.version
    if (dirname(folder) === folder) return '(not installed)'
    folder = dirname(folder)
  }
}

function manifestIn(folder: string): { name: string; version: string } | undefined {
  const path = join(folder, 'package.json')
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : undefined
}
