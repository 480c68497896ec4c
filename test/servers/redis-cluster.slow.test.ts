import { Cluster } from 'ioredis'
import { expect, it, onTestFinished } from 'vitest'
import { type RedisClusterOptions, startCluster } from '../support/servers/redis-cluster.js'

async function cluster(options?: RedisClusterOptions) {
  const group = await startCluster(options)
  onTestFinished(() => group.stop())
  return group
}

it('takes the keys of all slots, each on its node', async () => {
  const group = await cluster()
  const client = new Cluster([...group.nodes])
  onTestFinished(() => client.disconnect())
  const keys = Array.from({ length: 60 }, (_, index) => `key-${index}`)
  for (const key of keys) await client.set(key, 1)
  const owners = await Promise.all(keys.map((key) => group.nodeOf(key)))
  expect(new Set(owners).size).toBe(3)
  for (const [index, owner] of owners.entries()) expect(await owner.command('GET', keys[index] ?? '')).toBe('1')
  expect(await group.nodeOf('{a}1')).toBe(await group.nodeOf('a'))
})

it('goes on without one node where full coverage is not asked for, and takes it back with its data', async () => {
  const group = await cluster({ fullCoverage: false, appendOnly: true })
  const victim = await group.nodeOf('a')
  await victim.command('SET', 'a', 1)
  await victim.kill()
  const key = await keyElsewhere(group, victim)
  expect(await (await group.nodeOf(key)).command('SET', key, 1)).toBe('OK')
  await victim.restart()
  await group.ready()
  expect(await victim.command('GET', 'a')).toBe('1')
})

async function keyElsewhere(group: Awaited<ReturnType<typeof cluster>>, server: unknown): Promise<string> {
  for (let index = 0; ; index += 1) {
    if ((await group.nodeOf(`other-${index}`)) !== server) return `other-${index}`
  }
}
