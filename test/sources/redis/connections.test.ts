/** What is opened, and that it is closed. */
import { Cluster, Redis } from 'ioredis'
import { run } from 'millrace'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { timed } from '../../support/rig.js'
import { startProxy } from '../../support/servers/proxy.js'
import { type RedisServer, startRedis } from '../../support/servers/redis-server.js'
import { turn, until } from '../../support/wait.js'
import { Rig } from './rig.js'

let server: RedisServer

beforeAll(async () => {
  server = await startRedis()
})

afterAll(() => server.stop())

const freshRig = () => new Rig(onTestFinished)
const resources = () => process.getActiveResourcesInfo().length

describe('closing', () => {
  it.each([
    ['a URL', () => server.url],
    ['options', () => ({ host: '127.0.0.1', port: server.port })],
    ['a client', () => new Redis(server.url, { lazyConnect: true })],
    ['a cluster', () => new Cluster([{ host: '127.0.0.1', port: server.port }], { lazyConnect: true })],
  ] as const)('D9, C5 a backend made of %s, at once or while it connects, leaves nothing open', async (_, target) => {
    const rig = freshRig()
    const before = resources()
    for (let round = 0; round < 24; round += 1) {
      const backend = rig.backend(target())
      const queue = rig.queue(backend)
      if (round % 2 === 1) queue.source().subscribe({ error: () => {} })
      if (round % 4 > 1) queue.enqueue('a').catch(() => {})
      for (let turns = 0; turns < round % 8; turns += 1) await turn()
      await queue.close({ graceMs: 0 })
      await backend.close()
    }
    await until('nothing is open', () => resources() <= before, 3_000)
    // Only the one that asks.
    const clients = String(await server.command('CLIENT', 'LIST'))
    expect(clients.trim().split('\n')).toHaveLength(1)
  })

  it('D3 a queue whose source is idle takes no time, and leaves no connection', async () => {
    const rig = freshRig()
    const proxy = await rig.use(startProxy(server.port))
    const before = resources()
    const queue = rig.queue(rig.backend(proxy.url))
    const running = run(queue.source()).catch(({ name }: Error) => name)
    await queue.stats()
    await until('it waits on two connections', () => proxy.connections === 2)
    const tookMs = await timed(() => queue.close())
    expect(await running).toBe('ClosedError')
    expect(tookMs).toBeLessThan(50)
    await until('no connection stays', () => proxy.connections === 0, 1_000)
    await until('nothing is open', () => resources() <= before, 1_000)
  })

  it('D9 what was closed is opened again by the next queue, and lets go again', async () => {
    const rig = freshRig()
    const proxy = await rig.use(startProxy(server.port))
    const backend = rig.backend(proxy.url)
    for (let round = 0; round < 3; round += 1) {
      const queue = rig.queue(backend, {}, 'again')
      expect(await queue.enqueue('a')).toMatchObject({ status: 'enqueued' })
      expect(await (await queue.receive())?.ack()).toBe('settled')
      await queue.close()
      await until('no connection stays', () => proxy.connections === 0, 1_000)
    }
  })
})
