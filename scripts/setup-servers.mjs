/**
 * Makes the servers ready that the tests and benches run against: on Debian and its like, installs those that are
 * missing. Nothing is started: that is for the tests to do, on ports of their own.
 *
 * Silent when nothing is to be done. It may run before anything is installed, so it uses nothing but Node.
 */
import { spawnSync } from 'node:child_process'
import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** A server more is a line more. `variable` may name another binary, which the tests then start. */
const SERVERS = [
  { binary: 'redis-server', packages: ['redis-server'], brew: 'redis', variable: 'MILLRACE_REDIS_SERVER' },
  // The client is for people who look into a server by hand.
  { binary: 'etcd', packages: ['etcd-server', 'etcd-client'], brew: 'etcd', variable: 'MILLRACE_ETCD_SERVER' },
]

const INSTALLER = fileURLToPath(new URL('install-packages.sh', import.meta.url))

process.exitCode = setUp()

function setUp() {
  const misnamed = SERVERS.filter(({ variable }) => process.env[variable] && !isThere(process.env[variable]))
  for (const { variable } of misnamed) {
    console.error(`setup: ${variable} names ${process.env[variable]}, which is no program that can be run`)
  }
  if (misnamed.length > 0) return 1
  const due = missing()
  if (due.length === 0) return 0
  const asRoot = rights()
  if (!isThere('apt-get')) return ask(due, 'there is no apt-get here to install it with')
  if (asRoot === undefined) return ask(due, 'installing it takes root, or sudo that asks for no password')
  console.log(`setup: installing ${binariesOf(due)}`)
  const [command, ...args] = [...asRoot, 'sh', INSTALLER, ...due.flatMap(({ packages }) => packages)]
  const { status } = spawnSync(command, args, { stdio: 'inherit' })
  const left = missing()
  return left.length === 0 ? 0 : ask(left, `apt-get did not install it (it ended with ${status})`)
}

function missing() {
  return SERVERS.filter(({ binary, variable }) => !isThere(process.env[variable] || binary))
}

/** What to put before a command that needs root; undefined when there is no way to be root. */
function rights() {
  if (process.getuid?.() === 0) return []
  return isThere('sudo') && spawnSync('sudo', ['-n', 'true']).status === 0 ? ['sudo', '-n'] : undefined
}

/** Says what to do by hand. */
function ask(due, reason) {
  const variables = due.map(({ variable }) => variable).join(' and ')
  const debian = due.flatMap(({ packages }) => packages).join(' ')
  const macos = due.map(({ brew }) => brew).join(' ')
  console.error(
    `setup: the tests and benches need ${binariesOf(due)}, and ${reason}. Install it by hand so that it is on the ` +
      `PATH (Debian: apt-get install ${debian}; macOS: brew install ${macos}), ` +
      `or name the binary in ${variables}. It need not be running. The demo needs none of this.`,
  )
  return 1
}

function binariesOf(servers) {
  return servers.map(({ binary }) => binary).join(' and ')
}

/** Whether a program can be run, told by its path or its name. */
function isThere(program) {
  const folders = program.includes('/') ? [''] : (process.env.PATH ?? '').split(delimiter)
  return folders.some((folder) => isExecutable(join(folder, program)))
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}
