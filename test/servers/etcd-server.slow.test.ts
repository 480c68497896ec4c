import { existsSync } from 'node:fs'
import { expect, it, onTestFinished } from 'vitest'
import { type EtcdServer, type EtcdServerOptions, startEtcd } from '../support/servers/etcd-server.js'
import { pause } from '../support/wait.js'

async function etcd(options?: EtcdServerOptions): Promise<EtcdServer> {
  const server = await startEtcd(options)
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
  const server = await etcd()
  await server.gateway.put('a', '1')
  await server.gateway.put('ab', '2')
  expect(await server.gateway.list('a')).toMatchObject([
    { key: 'a', value: '1', version: 1 },
    { key: 'ab', value: '2', lease: '0' },
  ])
  expect(await server.gateway.keys()).toEqual(['a', 'ab'])
  expect(await server.gateway.count('ab')).toBe(1)
  await server.stop()
  expect(isAlive(server.pid)).toBe(false)
  expect(existsSync(server.dir)).toBe(false)
  await expect(server.gateway.count()).rejects.toThrow()
})

it('comes back on its port with all that was acknowledged', async () => {
  const server = await etcd()
  for (let index = 0; index < 20; index += 1) await server.gateway.put(`k${index}`, '')
  const { pid } = server
  await server.kill()
  expect([isAlive(pid), server.running]).toEqual([false, false])
  await server.restart()
  expect(server.pid).not.toBe(pid)
  expect(await server.gateway.count()).toBe(20)
})

it('says nothing while frozen, and all of it when thawed', async () => {
  const server = await etcd()
  server.freeze()
  const counted = server.gateway.count()
  expect(await Promise.race([counted, pause(200).then(() => 'silent')])).toBe('silent')
  server.thaw()
  expect(await counted).toBe(0)
})

it('knows its leases, and forgets them with their keys', async () => {
  const { gateway } = await etcd()
  const { ID } = await gateway.call('lease/grant', { TTL: 60 })
  await gateway.call('kv/put', { key: 'YQ==', lease: ID })
  expect(await gateway.leases()).toEqual([ID])
  expect(await gateway.lease(ID)).toMatchObject({ grantedS: 60, keys: ['a'] })
  await gateway.revoke(ID)
  expect([await gateway.leases(), await gateway.keys()]).toEqual([[], []])
})

it('takes no more than its quota', async () => {
  const { gateway } = await etcd({ quotaBytes: 1024 * 1024 })
  const filling = async () => {
    for (let index = 0; ; index += 1) await gateway.put(`k${index}`, Buffer.alloc(200_000))
  }
  await expect(filling()).rejects.toThrow('etcdserver: mvcc: database space exceeded')
  expect((await gateway.call('maintenance/alarm', { action: 'GET' })).alarms).toMatchObject([{ alarm: 'NOSPACE' }])
})

it('asks who it is when told to, also after a restart, and forgets a token that nobody uses', async () => {
  const server = await etcd({ auth: { tokenTtlS: 1 } })
  await server.gateway.put('a', '1')
  await pause(2_500)
  await expect(server.gateway.count()).rejects.toThrow('invalid auth token')
  await server.restart()
  await expect(server.gateway.count()).rejects.toThrow('invalid auth token')
  await server.gateway.authenticate('root', 'secret')
  expect(await server.gateway.count()).toBe(1)
})

it('forgets old revisions when told to', async () => {
  const { gateway } = await etcd()
  await gateway.put('a', '1')
  await gateway.put('a', '2')
  await gateway.compact()
  await expect(gateway.call('kv/range', { key: 'YQ==', revision: 2 })).rejects.toThrow('compacted')
  expect(await gateway.metric('etcd_mvcc_put_total')).toBe(2)
})

it('takes arguments, and tells why it could not start', async () => {
  await expect(startEtcd({ args: ['--nonsense', '1'] })).rejects.toThrow('nonsense')
})

it('starts many at once', async () => {
  const servers = await Promise.all(Array.from({ length: 5 }, () => etcd()))
  expect(new Set(servers.map(({ port }) => port)).size).toBe(5)
})
