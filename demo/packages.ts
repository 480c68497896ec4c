/** Finds installed packages. */
import type { Dirent } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'

/**
 * The folders of all packages under a `node_modules` folder, scoped and nested ones too, as paths relative to it.
 *
 * A linked package is listed, but not searched for nested ones: links may lead in circles. A package folder that
 * cannot be read is listed too; its audit will tell why. Rejects with the signal's reason when that aborts.
 */
export async function findPackages(modules: string, signal: AbortSignal, prefix = ''): Promise<string[]> {
  const found: string[] = []
  for (const entry of await foldersIn(join(modules, prefix), signal)) {
    const path = `${prefix}${entry.name}`
    // npm keeps its own affairs in hidden folders.
    if (entry.name.startsWith('.')) continue
    if (entry.name.startsWith('@')) found.push(...(await findPackages(modules, signal, `${path}/`)))
    else found.push(path, ...(await findNested(modules, signal, path, entry)))
  }
  return found
}

async function findNested(modules: string, signal: AbortSignal, path: string, entry: Dirent): Promise<string[]> {
  if (entry.isSymbolicLink()) return []
  const inside = await foldersIn(join(modules, path), signal).catch(() => [])
  const nested = inside.some((each) => each.name === 'node_modules' && each.isDirectory())
  return nested ? findPackages(modules, signal, `${path}/node_modules/`) : []
}

async function foldersIn(folder: string, signal: AbortSignal): Promise<Dirent[]> {
  signal.throwIfAborted()
  const entries = await readdir(folder, { withFileTypes: true })
  return entries
    .filter((entry) => entry.isDirectory() || entry.isSymbolicLink())
    .sort((a, b) => (a.name < b.name ? -1 : 1))
}
