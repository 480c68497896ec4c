import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const SETUP = fileURLToPath(new URL('../../scripts/setup-servers.mjs', import.meta.url))
const INSTALLER = fileURLToPath(new URL('../../scripts/install-packages.sh', import.meta.url))
const NOBODY = 65_534

let folder: string
let bin: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-setup-'))
  chmodSync(folder, 0o777)
  bin = join(folder, 'bin')
  mkdirSync(bin)
})

afterEach(() => rmSync(folder, { recursive: true }))

/** A program of that name, first on the PATH. */
function stub(name: string, ...lines: readonly string[]): void {
  const path = join(bin, name)
  writeFileSync(path, ['#!/bin/sh', ...lines, ''].join('\n'))
  chmodSync(path, 0o755)
}

describe('the set-up of servers', () => {
  const isRoot = process.getuid?.() === 0

  /** With nothing but the stubs on the PATH. */
  function setUp({ env = {}, uid }: { env?: NodeJS.ProcessEnv; uid?: number | undefined } = {}) {
    const { stdout, stderr, status } = spawnSync(process.execPath, [SETUP], {
      env: { PATH: bin, ...env },
      encoding: 'utf8',
      ...(uid !== undefined && { uid }),
    })
    return { stdout, stderr, status }
  }

  /** Stands in for the installer: says what it was asked for. */
  const installs = [
    'installer=$1; shift',
    `echo "\${installer##*/} $*"`,
    ...['redis-server', 'etcd'].flatMap((name) => [
      `printf '#!/bin/sh\\n' >"\${0%/*}/${name}"`,
      `/bin/chmod 755 "\${0%/*}/${name}"`,
    ]),
  ]
  const sudo = ['[ "$2" = true ] && exit 0', 'shift', 'echo sudo', 'exec "$@"']

  it('is silent when all is there', () => {
    stub('redis-server')
    stub('etcd')
    expect(setUp()).toEqual({ stdout: '', stderr: '', status: 0 })
  })

  it('installs what is missing', () => {
    stub('apt-get')
    stub('sudo', ...sudo)
    stub('sh', ...installs)
    const asked = `${isRoot ? '' : 'sudo\n'}install-packages.sh redis-server etcd-server etcd-client\n`
    expect(setUp()).toEqual({ stdout: `setup: installing redis-server and etcd\n${asked}`, stderr: '', status: 0 })
    expect(setUp()).toEqual({ stdout: '', stderr: '', status: 0 })
  })

  it('installs one that is missing, and not the other', () => {
    stub('redis-server')
    stub('apt-get')
    stub('sudo', ...sudo)
    stub('sh', ...installs)
    const asked = `${isRoot ? '' : 'sudo\n'}install-packages.sh etcd-server etcd-client\n`
    expect(setUp()).toEqual({ stdout: `setup: installing etcd\n${asked}`, stderr: '', status: 0 })
  })

  it('is content with another binary', () => {
    stub('valkey-server')
    stub('etcd')
    expect(setUp({ env: { MILLRACE_REDIS_SERVER: join(bin, 'valkey-server') } }).status).toBe(0)
    expect(setUp({ env: { MILLRACE_REDIS_SERVER: 'valkey-server' } }).status).toBe(0)
  })

  it('refuses a binary that is not there, and installs nothing instead', () => {
    stub('apt-get')
    stub('sh', ...installs)
    const { stdout, stderr, status } = setUp({ env: { MILLRACE_REDIS_SERVER: '/nowhere/redis' } })
    expect({ stdout, status }).toEqual({ stdout: '', status: 1 })
    expect(stderr).toContain('MILLRACE_REDIS_SERVER names /nowhere/redis')
  })

  it('says what to do where there is no apt', () => {
    const { stderr, status } = setUp()
    expect(status).toBe(1)
    expect(stderr).toMatch(
      /need redis-server and etcd, and there is no apt-get.*apt-get install redis-server etcd-server etcd-client; macOS: brew install redis etcd\).*MILLRACE_REDIS_SERVER and MILLRACE_ETCD_SERVER\..*\n$/,
    )
    stub('redis-server')
    const { stderr: one } = setUp()
    expect(one).toMatch(/need etcd, and .*apt-get install etcd-server etcd-client; macOS: brew install etcd\)/)
    expect(one).not.toContain('REDIS')
  })

  it('says what to do where it may not install', () => {
    stub('apt-get')
    stub('sudo', 'exit 1')
    const { stderr, status } = setUp({ uid: isRoot ? NOBODY : undefined })
    expect(status).toBe(1)
    expect(stderr).toContain('takes root, or sudo that asks for no password')
  })

  it('says what to do when installing did not help', () => {
    stub('apt-get')
    stub('sudo', ...sudo)
    stub('sh', 'exit 100')
    const { stderr, status } = setUp()
    expect(status).toBe(1)
    expect(stderr).toContain('it ended with 100')
  })
})

describe('the installer', () => {
  const policy = () => join(folder, 'policy-rc.d')
  const log = () =>
    existsSync(join(folder, 'log')) ? readFileSync(join(folder, 'log'), 'utf8').trim().split('\n') : []

  function start() {
    const env = {
      PATH: `${bin}:/usr/bin:/bin`,
      LOG: join(folder, 'log'),
      MILLRACE_POLICY_FILE: policy(),
      MILLRACE_SETUP_LOCK: join(folder, 'lock'),
    }
    return spawn('/bin/sh', [INSTALLER, 'redis-server'], { env, stdio: 'ignore' })
  }

  async function install(): Promise<number> {
    const [code] = await once(start(), 'exit')
    return code
  }

  /** Logs the sub-command, and what the policy says by then. */
  const logs = [
    'for word; do case $word in update|install) break;; esac; done',
    'echo "$word $(/bin/sh "$MILLRACE_POLICY_FILE" >/dev/null; echo $?)" >>"$LOG"',
  ]

  it('forbids services for the time of the installation, and takes that back', async () => {
    stub('apt-cache')
    stub('apt-get', ...logs)
    expect(await install()).toBe(0)
    expect(log()).toEqual(['install 101'])
    expect(existsSync(policy())).toBe(false)
  })

  it('leaves the policy of the machine alone', async () => {
    writeFileSync(policy(), 'exit 104\n')
    stub('apt-cache')
    stub('apt-get', ...logs)
    expect(await install()).toBe(0)
    expect(log()).toEqual(['install 104'])
    expect(readFileSync(policy(), 'utf8')).toBe('exit 104\n')
  })

  it('reads the lists where the package is unknown, and again where it cannot be had', async () => {
    stub('apt-cache', 'exit 100')
    stub('apt-get', ...logs, '[ "$word" = update ] || [ "$(/usr/bin/wc -l <"$LOG")" -gt 2 ]')
    expect(await install()).toBe(0)
    expect(log()).toEqual(['update 101', 'install 101', 'update 101', 'install 101'])
  })

  it('fails when apt does, and takes the policy back', async () => {
    stub('apt-cache')
    stub('apt-get', ...logs, '[ "$word" = update ] || exit 100')
    expect(await install()).toBe(100)
    expect(log()).toEqual(['install 101', 'update 101', 'install 101'])
    expect(existsSync(policy())).toBe(false)
  })

  it('takes the policy back when it is interrupted, and takes away what one that was killed has left', async () => {
    stub('apt-cache')
    stub('apt-get', ...logs, 'kill -TERM $PPID')
    expect(await install()).toBe(130)
    expect(existsSync(policy())).toBe(false)
    stub('apt-get', ...logs, 'kill -KILL $PPID')
    await install()
    expect(existsSync(policy())).toBe(true)
    stub('apt-get', ...logs)
    expect(await install()).toBe(0)
    expect(existsSync(policy())).toBe(false)
  })

  it('lets one install at a time', async () => {
    stub('apt-cache')
    stub('apt-get', 'echo begin >>"$LOG"', '/bin/sleep 0.1', ...logs, 'echo end >>"$LOG"')
    expect(await Promise.all([install(), install(), install()])).toEqual([0, 0, 0])
    expect(log()).toEqual(Array.from({ length: 3 }, () => ['begin', 'install 101', 'end']).flat())
    expect(existsSync(policy())).toBe(false)
  })
})
