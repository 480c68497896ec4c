import { Redis } from 'ioredis'
import { expect, it, onTestFinished } from 'vitest'
import { type RedisSentinelOptions, startSentinel } from '../support/servers/redis-sentinel.js'

async function sentinel(options?: RedisSentinelOptions) {
  const group = await startSentinel(options)
  onTestFinished(() => group.stop())
  return group
}

it.each([1, 3])('fails over with %i sentinels, and a client goes along', async (sentinels) => {
  const group = await sentinel({ sentinels })
  const client = new Redis(group.options)
  onTestFinished(() => client.disconnect())
  client.on('error', () => {})
  const old = group.master
  await client.set('a', 1)
  await client.wait(1, 1_000)
  await group.failover()
  expect(group.master).not.toBe(old)
  expect(await client.get('a')).toBe('1')
  expect(await client.set('b', 2)).toBe('OK')
  expect(await group.master.command('GET', 'b')).toBe('2')
})

it('takes the old master back as a replica, and fails over to it', async () => {
  const group = await sentinel()
  const old = group.master
  await group.failover()
  await group.master.command('SET', 'a', 1)
  await group.rejoin()
  expect(group.replica).toBe(old)
  await group.master.command('WAIT', 1, 1_000)
  await group.failover()
  expect(group.master).toBe(old)
  expect(await old.command('GET', 'a')).toBe('1')
})

it('fails over from a frozen master, which is a replica when it is back', async () => {
  const group = await sentinel()
  group.master.freeze()
  await group.promoted()
  group.replica.thaw()
  await group.rejoined()
  expect(await group.replica.command('ROLE')).toContain('slave')
})
