/**
 * Packages that only benches compare with. They live in `bench/peers`, a package of its own, so that nobody has to
 * download and compile them who does not run such a bench.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const folder = fileURLToPath(new URL('peers', import.meta.url))

type Packages = Readonly<Record<string, { readonly version?: string; readonly optional?: boolean }>>

/** Installs what the lock file says unless it is there already. */
export function installPeers(): void {
  if (isInstalled()) return
  console.log('bench/peers: running npm ci, which compiles and takes a minute or two')
  // Under `npm run` the npm that is running is the one to use; otherwise the one on the path.
  const own = process.env['npm_execpath']
  const [command, ...args] = own?.endsWith('.js') ? [process.execPath, own, 'ci'] : ['npm', 'ci']
  const shell = command === 'npm' && process.platform === 'win32'
  const { status } = spawnSync(command, [...args, '--loglevel=error'], { cwd: folder, stdio: 'inherit', shell })
  if (status !== 0) throw new Error('npm ci failed in bench/peers')
}

/** Installs the servers that a bench starts, as the tests do. */
export function installServers(): void {
  const script = fileURLToPath(new URL('../scripts/setup-servers.mjs', import.meta.url))
  if (spawnSync(process.execPath, [script], { stdio: 'inherit' }).status !== 0) throw new Error('a server is missing')
}

/**
 * The module of an installed peer, by the types that the caller gives: the compiler must do without the packages.
 * Undefined where the peer could not be built, as with a Node that is younger than it.
 */
export async function importPeer<T>(name: string): Promise<T | undefined> {
  try {
    const path = createRequire(join(folder, 'package.json')).resolve(name)
    // One of the same name further up is another version.
    if (!path.startsWith(join(folder, 'node_modules'))) throw new Error('it is not installed')
    return (await import(pathToFileURL(path).href)) as T
  } catch (error) {
    console.log(`bench/peers: going on without ${name}: ${error instanceof Error ? error.message : error}`)
    return undefined
  }
}

function isInstalled(): boolean {
  const installed = readPackages('node_modules/.package-lock.json')
  if (installed === undefined) return false
  return Object.entries(readPackages('package-lock.json') ?? {}).every(
    ([path, { version, optional }]) =>
      path === '' || installed[path]?.version === version || (optional && installed[path] === undefined),
  )
}

function readPackages(file: string): Packages | undefined {
  const path = join(folder, file)
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).packages : undefined
}
