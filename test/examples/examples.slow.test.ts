import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { allBundled } from '../support/bundled.js'
import { startEtcd } from '../support/servers/etcd-server.js'
import { startRedis } from '../support/servers/redis-server.js'

const folder = new URL('../../examples/', import.meta.url)
const root = fileURLToPath(new URL('../../', import.meta.url))
const names = readdirSync(folder).filter((name) => name.endsWith('.ts'))

const sources = names.map((name) => new URL(name, folder))
const programs = await allBundled(sources)
const [redis, etcd] = await Promise.all([startRedis(), startEtcd()])
afterAll(() => Promise.all([redis.stop(), etcd.stop()]))

/** What an example says at its foot that it prints. */
function expectation(text: string): string {
  const foot = text.slice(text.indexOf('// Prints:\n') + '// Prints:\n'.length)
  return foot.replaceAll(/^\/\/ ?/gm, '')
}

async function output(path: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [path], {
    cwd: root,
    env: { ...process.env, REDIS_URL: redis.url, ETCD_HOSTS: etcd.url },
  })
  return stdout
}

describe('examples', () => {
  it('are numbered without gaps', () => {
    expect(names.map((name) => Number(name.slice(0, 2)))).toEqual(names.map((_, index) => index + 1))
  })

  it.concurrent.each(sources.map((source, index) => [names[index], source, programs[index] as string] as const))(
    '%s prints what it says',
    async (_, source, program) => {
      expect(await output(program)).toBe(expectation(readFileSync(source, 'utf8')))
    },
  )
})
