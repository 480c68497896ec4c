import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { expect, it, onTestFinished } from 'vitest'
import { bundled } from '../support/bundled.js'
import { Child } from '../support/child.js'
import { type RedisServer, type RedisServerOptions, startRedis } from '../support/servers/redis-server.js'
import { until } from '../support/wait.js'

const holdServers = await bundled(new URL('children/hold-servers.ts', import.meta.url))

async function redis(options?: RedisServerOptions): Promise<RedisServer> {
  const server = await startRedis(options)
  onTestFinished(() => server.stop())
  return server
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

it('answers when it has started, and leaves nothing when it has stopped', async () => {
  const server = await redis()
  const client = new Redis(server.url)
  onTestFinished(() => client.disconnect())
  client.on('error', () => {})
  expect(await client.set('a', 1)).toBe('OK')
  expect(await server.command('GET', 'a')).toBe('1')
  await server.stop()
  expect(isAlive(server.pid)).toBe(false)
  expect(existsSync(server.dir)).toBe(false)
  await expect(server.command('PING')).rejects.toThrow()
})

it('comes back on its port with all that was acknowledged', async () => {
  const server = await redis({ appendOnly: true })
  for (let index = 0; index < 100; index += 1) await server.command('RPUSH', 'list', index)
  const { pid } = server
  await server.kill()
  expect(isAlive(pid)).toBe(false)
  await server.restart()
  expect(server.pid).not.toBe(pid)
  expect(await server.command('LLEN', 'list')).toBe(100)
})

it('comes back empty unless told to append', async () => {
  const server = await redis()
  await server.command('SET', 'a', 1)
  await server.restart()
  expect(await server.command('DBSIZE')).toBe(0)
})

it('keeps the folder of a caller', async () => {
  const keep = mkdtempSync(join(tmpdir(), 'millrace-keep-'))
  onTestFinished(() => rmSync(keep, { recursive: true }))
  const first = await redis({ keep, appendOnly: true })
  await first.command('SET', 'a', 1)
  await first.stop()
  const second = await redis({ keep, appendOnly: true })
  expect(await second.command('GET', 'a')).toBe('1')
})

it('says nothing while frozen, and all of it when thawed', async () => {
  const server = await redis()
  const client = new Redis(server.url)
  onTestFinished(() => client.disconnect())
  await client.ping()
  server.freeze()
  const pong = client.ping()
  expect(await Promise.race([pong, new Promise((resolve) => setTimeout(resolve, 200, 'silent'))])).toBe('silent')
  server.thaw()
  expect(await pong).toBe('PONG')
})

it('takes arguments, and tells why it could not start', async () => {
  const server = await redis({ args: ['--maxmemory', '5mb'] })
  expect(await server.command('CONFIG', 'GET', 'maxmemory')).toEqual(['maxmemory', String(5 * 1024 * 1024)])
  await expect(startRedis({ args: ['--nonsense', '1'] })).rejects.toThrow('nonsense')
  await expect(startRedis({ port: server.port })).rejects.toThrow(/address already in use/i)
})

it('starts many at once', async () => {
  const servers = await Promise.all(Array.from({ length: 10 }, () => redis()))
  expect(new Set(servers.map(({ port }) => port)).size).toBe(10)
})

it('ends with the process that started it, also by SIGKILL', async () => {
  const child = new Child<{ pid: number; dir: string }[]>(holdServers, [])
  const servers = await child.hear()
  expect(servers.filter(({ pid }) => isAlive(pid))).toHaveLength(12)
  await child.kill()
  await until('no server is left', () => servers.every(({ pid }) => !isAlive(pid)))
  // The shells remove them, each in a few processes of its own.
  await until('no data is left', () => servers.every(({ dir }) => !existsSync(dir)), 10_000)
})
