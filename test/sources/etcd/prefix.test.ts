import { Etcd3 } from 'etcd3'
import { InvalidOptionError, type Queue } from 'millrace'
import { etcdBackend } from 'millrace/etcd'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { pause } from '../../support/wait.js'
import { Rig } from './rig.js'

let server: EtcdServer
let rig: Rig

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

beforeEach(async () => {
  rig = new Rig(onTestFinished)
  await server.gateway.deletePrefix()
})

/** Everything that watches, leases and stores. */
async function lifeOf(queue: Queue<string>): Promise<void> {
  const waiting = queue.receive({ timeoutMs: 10_000 })
  await pause(200)
  await queue.enqueue('a', { id: 'a' })
  const delivery = await waiting
  expect(delivery).toMatchObject({ id: 'a', payload: 'a' })
  expect(await delivery?.ack({ done: true })).toBe('settled')
  expect(await queue.outcome('a', { timeoutMs: 0 })).toEqual({ state: 'done', result: { done: true } })
  await queue.enqueue('b', { id: 'b' })
  expect(await (await queue.receive())?.deadLetter('bad')).toBe('settled')
  expect(await queue.deadLetters.purge('b')).toBe(true)
}

describe('a prefix', () => {
  it('E19 is before all keys, and in what is watched', async () => {
    await lifeOf(rig.queue(rig.backend(server.url, { prefix: 'team/one/' })))
    const keys = await server.gateway.keys()
    expect(keys.length).toBeGreaterThan(0)
    expect(keys.filter((key) => !key.startsWith('team/one/'))).toEqual([])
  })

  it('E19 keeps apart queues of one name, also where one prefix begins with the other', async () => {
    const [plain, one, longer] = [
      rig.queue(rig.backend(server.url), {}, 'q'),
      rig.queue(rig.backend(server.url, { prefix: 'p' }), {}, 'q'),
      rig.queue(rig.backend(server.url, { prefix: 'pp' }), {}, 'q'),
    ] as const
    await plain.enqueue('plain')
    await one.enqueue('one')
    await longer.enqueue('longer')
    for (const [queue, payload] of [
      [plain, 'plain'],
      [one, 'one'],
      [longer, 'longer'],
    ] as const) {
      expect(await queue.stats()).toMatchObject({ ready: 1, enqueuedTotal: 1 })
      expect(await queue.tryTake()).toBe(payload)
    }
  })

  it('E19 may be that of a namespace of a client', async () => {
    const client = new Etcd3({ hosts: server.url })
    onTestFinished(() => client.close())
    await lifeOf(rig.queue(etcdBackend(client.namespace('space/'))))
    const keys = await server.gateway.keys()
    expect(keys.filter((key) => !key.startsWith('space/'))).toEqual([])
    // The other way round it is found.
    const same = rig.queue(rig.backend(server.url, { prefix: 'space/' }), {}, 'q')
    await same.enqueue('x')
    expect(await rig.queue(etcdBackend(client.namespace('space/')), {}, 'q').tryTake()).toBe('x')
  })
})

describe('names of queues', () => {
  it.each(['a/b', 'a', 'a/', '/', 'ü 你好', '..', 'a%2Fb', 'A', '\u0001', 'q'.repeat(200)])(
    '%j are kept apart',
    async (name) => {
      const queue = rig.queue(rig.backend(server.url), {}, name)
      const neighbours = [`${name}/`, `${name}0`, `${name}a`].map((each) =>
        rig.queue(rig.backend(server.url), {}, each),
      )
      for (const each of neighbours) await each.enqueue('not mine')
      await queue.enqueue('mine')
      expect(await queue.purge()).toBe(1)
      for (const each of neighbours) expect(await each.size()).toBe(1)
    },
  )
})

describe('ids of messages', () => {
  it.each(['a/b', '/', '..', 'ü 你好', '\u0000', 'a\u0000', ' ', 'x'.repeat(256)])(
    '%j are kept as they are',
    async (id) => {
      const queue = rig.queue(rig.backend(server.url))
      await queue.enqueue('one', { id })
      await queue.enqueue('two', { id: `${id}!` })
      expect(await queue.enqueue('again', { id })).toEqual({ id, status: 'duplicate' })
      expect(await queue.cancel(id)).toBe('cancelled')
      expect(await queue.tryReceive()).toMatchObject({ id: `${id}!`, payload: 'two' })
      expect(await queue.outcome(id, { timeoutMs: 0 })).toEqual({ state: 'cancelled' })
    },
  )
})

describe('a client of the caller', () => {
  it('is not closed with the backend, and its own calls go on', async () => {
    const client = new Etcd3({ hosts: server.url })
    onTestFinished(() => client.close())
    const queue = rig.queue(etcdBackend(client))
    await lifeOf(queue)
    await queue.close()
    await client.put('mine').value('1')
    expect(await client.get('mine').string()).toBe('1')
  })

  it('C7 may have a deadline by default, which ends none of our streams', async () => {
    const client = new Etcd3({ hosts: server.url, defaultCallOptions: () => ({ deadline: Date.now() + 300 }) })
    onTestFinished(() => client.close())
    const queue = rig.queue(etcdBackend(client), { leaseMs: 2_000 })
    await queue.enqueue('a')
    const delivery = await queue.receive()
    await pause(3_000)
    expect(delivery?.signal.aborted).toBe(false)
    expect(await delivery?.ack()).toBe('settled')
  })
})

describe('bad options', () => {
  it.each([
    undefined,
    null,
    7,
    '',
    [],
    {},
    { hosts: [] },
    { hosts: '' },
    { hosts: 7 },
    { hosts: 'http://127.0.0.1:1', prefix: 7 },
  ])('%j are refused without I/O, by name', (options) => {
    expect(() => etcdBackend(options as never)).toThrow(InvalidOptionError)
  })
})
