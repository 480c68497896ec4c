/**
 * Makes a fresh clone ready: installs what package-lock.json says when node_modules is missing or differs from it.
 *
 * Silent when nothing is to be done. It runs before anything is installed, so it uses nothing but Node.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

/** Why an install is due, or undefined when the installed tree is the locked one. */
function staleBecause() {
  const installed = readPackages('node_modules/.package-lock.json')
  if (installed === undefined) return 'node_modules is missing'
  for (const [path, locked] of Object.entries(readPackages('package-lock.json') ?? {})) {
    if (path === '') continue
    // An optional package may be one for another platform.
    if (installed[path] === undefined && locked.optional) continue
    if (!isSame(installed[path], locked) || !existsSync(join(root, path))) return `${path} differs from the lock`
  }
  return undefined
}

function isSame(installed, locked) {
  return installed?.version === locked.version && installed?.integrity === locked.integrity
}

function readPackages(file) {
  const path = join(root, file)
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).packages : undefined
}

function install() {
  // Under `npm run` the npm that is running is the one to use; otherwise the one on the path.
  const own = process.env.npm_execpath
  const [command, ...args] = own?.endsWith('.js') ? [process.execPath, own, 'ci'] : ['npm', 'ci']
  const { status, error } = spawnSync(command, args, {
    cwd: root,
    stdio: 'inherit',
    shell: command === 'npm' && process.platform === 'win32',
  })
  if (error) throw error
  return status ?? 1
}

const reason = staleBecause()
if (reason !== undefined) {
  console.log(`setup: ${reason}, running npm ci`)
  process.exitCode = install()
}
