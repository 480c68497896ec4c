import { Etcd3 } from 'etcd3'
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest'
import { type EtcdProxy, ofMethod, startEtcdProxy } from '../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../support/servers/etcd-server.js'
import { txnAnswered, txnAsked } from '../support/servers/etcd-wire.js'
import { until } from '../support/wait.js'

let server: EtcdServer
let proxy: EtcdProxy

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

beforeEach(async () => {
  await server.gateway.deletePrefix()
  const started = await startEtcdProxy(server.port)
  proxy = started
  onTestFinished(() => started.stop())
})

/** A client that tells what it hears, instead of trying again. */
function client(): Etcd3 {
  const faultHandling = { global: noPolicy, host: () => noPolicy }
  const etcd = new Etcd3({ hosts: proxy.url, faultHandling: faultHandling as never })
  onTestFinished(() => etcd.close())
  return etcd
}

const noPolicy = {
  execute: async (work: (context: object) => unknown) => work({}),
  onFailure: () => {},
  onSuccess: () => {},
}
const put = ofMethod('KV/Put')

it('passes on what is asked and answered, and knows it', async () => {
  const etcd = client()
  await etcd.put('a').value('x'.repeat(100_000))
  const txn = etcd.if('a', 'Version', '==', 1).then(etcd.put('b').value('2'), etcd.get('a')).else(etcd.get('c'))
  expect((await txn.commit()).succeeded).toBe(true)
  expect((await etcd.get('a').string())?.length).toBe(100_000)
  expect(proxy.calls.map(({ method }) => method)).toEqual(['KV/Put', 'KV/Txn', 'KV/Range'])
  const { request, reply, open } = proxy.calls[1] as (typeof proxy.calls)[1]
  expect(txnAsked(request)).toMatchObject({
    compares: 1,
    success: 2,
    failure: 1,
    puts: [{ key: 'b', bytes: 1 }],
    ranges: [
      { key: 'a', end: '', limit: 1, isSorted: false },
      { key: 'c', end: '' },
    ],
  })
  expect(txnAnswered(reply as Buffer)).toEqual({ succeeded: true, keys: 1, within: [] })
  expect([open, proxy.connections]).toEqual([false, 1])
})

it('passes on errors', async () => {
  await expect(client().lease(60).revoke()).resolves.toBeUndefined()
  const etcd = client()
  await expect(etcd.put('a').lease('12345').value('1')).rejects.toThrow('requested lease not found')
})

it('passes on streams, and ends them with the connection', async () => {
  const watcher = await client().watch().prefix('w').create()
  const seen: string[] = []
  watcher.on('put', ({ key }) => seen.push(key.toString()))
  watcher.on('error', () => {})
  await server.gateway.put('w1', '')
  await until('it is seen', () => seen.length === 1)
  expect(proxy.messagesIn('Watch/Watch')).toBe(1)
  expect(proxy.calls.filter(({ open }) => open)).toMatchObject([{ method: 'Watch/Watch' }])
  const lost = new Promise((resolve) => watcher.once('disconnected', resolve))
  proxy.resetAll()
  await lost
  await server.gateway.put('w2', '')
  await until('it is seen after all', () => seen.includes('w2'))
  await watcher.cancel()
})

it.each(['cut', 'refusal'] as const)('loses the reply that it is told to, by %s', async (loss) => {
  const etcd = client()
  const { dropped } = proxy.dropReply({ nth: 2, match: put, loss })
  const outcomes: string[] = []
  for (const key of ['a', 'b', 'c']) {
    await etcd
      .put(key)
      .value('1')
      .then(
        () => outcomes.push('ok'),
        (error) => outcomes.push(error.constructor.name),
      )
  }
  expect((await dropped).request.toString()).toContain('b')
  expect(outcomes).toEqual(['ok', 'GRPCUnavailableError', 'ok'])
  expect(await server.gateway.keys()).toEqual(['a', 'b', 'c'])
})

it('loses a reply in silence', async () => {
  const etcd = client()
  const { dropped } = proxy.dropReply({ match: put, loss: 'silence' })
  const putting = etcd
    .put('a')
    .value('1')
    .options({ deadline: Date.now() + 1_000 })
    .exec()
  await dropped
  await expect(putting).rejects.toThrow('DEADLINE')
  expect(await server.gateway.keys()).toEqual(['a'])
})

it('lies', async () => {
  const etcd = client()
  const lie = proxy.lie({ code: 8, message: 'etcdserver: mvcc: database space exceeded', match: put, times: 2 })
  for (const key of ['a', 'b']) await expect(etcd.put(key).value('1')).rejects.toThrow('space exceeded')
  await etcd.put('c').value('1')
  expect([lie.left, await server.gateway.keys()]).toEqual([0, ['c']])
})

it('lets the server know that a client has hung up', async () => {
  const watcher = await client().watch().prefix('w').create()
  await until('it watches', async () => (await server.gateway.watchers()) === 1)
  await watcher.cancel()
  await until('it does not', async () => (await server.gateway.watchers()) === 0)
})
