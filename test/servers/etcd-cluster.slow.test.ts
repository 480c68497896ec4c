import { afterAll, beforeAll, expect, it } from 'vitest'
import { type EtcdCluster, startEtcdCluster } from '../support/servers/etcd-cluster.js'
import { until } from '../support/wait.js'

let group: EtcdCluster

beforeAll(async () => {
  group = await startEtcdCluster()
})

afterAll(() => group.stop())

it('goes on without its leader, and takes it back with what was written meanwhile', async () => {
  const old = await group.leader()
  const other = await group.follower()
  await other.gateway.put('a', '1')
  await old.kill()
  await until('there is another', async () => (await group.leader()) !== old)
  await other.gateway.put('b', '2')
  await old.restart()
  await group.ready()
  expect(await old.gateway.keys()).toEqual(['a', 'b'])
})

it.each(['leader', 'follower'] as const)('cuts off a %s: it takes nothing, the others go on', async (which) => {
  const lonely = await group[which]()
  const others = group.servers.filter((server) => server !== lonely)
  group.cutOff(lonely)
  await until('the others have a leader of their own', async () => (await group.leader()) !== lonely)
  await others[0]?.gateway.put(which, '1')
  await expect(lonely.gateway.call('kv/put', { key: Buffer.from('lost').toString('base64') }, 1_000)).rejects.toThrow()
  // It answers still, as long as it need not ask the others, and does not know what they know.
  const key = Buffer.from(which).toString('base64')
  expect(await lonely.gateway.call('kv/range', { key, serializable: true })).not.toHaveProperty('kvs')
  group.mend()
  await group.ready()
  await until('it knows', async () => (await lonely.gateway.count(which)) === 1)
})
