/** What does not fit into a request of etcd is told before it is sent, by name; what need not go together is split. */
import { bytes, LimitError, MillraceError, mergeMap, pipe, type Queue, run } from 'millrace'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import type { Claim } from '../../../src/driver.js'
import { expectStats } from '../../support/queues.js'
import { timed } from '../../support/rig.js'
import { type EtcdProxy, startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { txnAsked } from '../../support/servers/etcd-wire.js'
import { isTxn, isWrite, Rig, widthOf } from './rig.js'

const KIB = 1_024
const MIB = KIB * KIB
/** What etcd takes by default. */
const MAX_OPERATIONS = 128
const MAX_REQUEST = 1.5 * MIB

let server: EtcdServer
let rig: Rig
let proxy: EtcdProxy

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

beforeEach(async () => {
  rig = new Rig(onTestFinished)
  proxy = await rig.use(startEtcdProxy(server.port))
})

/** Nothing that was sent in a test is more than the server takes. */
afterEach(() => {
  for (const { request } of proxy.calls.filter(isTxn)) {
    expect(widthOf(txnAsked(request))).toBeLessThanOrEqual(MAX_OPERATIONS)
    expect(request.length).toBeLessThanOrEqual(MAX_REQUEST)
  }
})

const ids = (count: number) => Array.from({ length: count }, (_, index) => `m${String(index).padStart(5, '0')}`)
const entries = (count: number, payload = 'x') => ids(count).map((id) => ({ payload, id }))

function proxied<T = string>(options: object = {}): Queue<T> {
  return rig.queue<T>(rig.backend(proxy.url), options)
}

/** What a batch comes to: all of it, or nothing of it and why. */
async function expectAllOrNothing(
  queue: Queue<string>,
  batch: readonly { payload: string; id: string }[],
): Promise<void> {
  await queue.size()
  const sent = proxy.count(isWrite)
  const outcome = await queue.enqueueAll(batch).then(
    (enqueued) => enqueued.map(({ status }) => status),
    (error: Error) => error,
  )
  if (!(outcome instanceof Error)) {
    expect(outcome).toEqual(batch.map(() => 'enqueued'))
    await expectStats(queue, { ready: batch.length, enqueuedTotal: batch.length })
    return
  }
  expect(outcome).toBeInstanceOf(LimitError)
  const { limit, maximum, value } = outcome as LimitError
  expect([typeof limit, limit.length > 0, value > maximum]).toEqual(['string', true, true])
  expect(outcome.message).toContain(limit)
  expect(proxy.count(isWrite)).toBe(sent)
  await expectStats(queue, { ready: 0, enqueuedTotal: 0 })
}

describe('a batch', () => {
  it.each([127, 128, 129, 1_000, 5_000])(
    'N32, E1 of %i goes in whole or not at all, and says which limit',
    async (count) => {
      await expectAllOrNothing(proxied(), entries(count))
    },
  )

  it('N31 of 128 goes in', async () => {
    const queue = proxied()
    expect(await queue.enqueueAll(entries(128))).toHaveLength(128)
  })

  it.each([
    [1, 2 * MIB],
    [20, 100 * KIB],
    [3, MIB],
  ])(
    'N32, E2 of %i payloads of %i bytes, which no request holds, is refused before anything is sent',
    async (count, size) => {
      const queue = proxied()
      await expectAllOrNothing(queue, entries(count, 'x'.repeat(size)))
      await expect(queue.enqueueAll(entries(count, 'x'.repeat(size)))).rejects.toBeInstanceOf(LimitError)
      // And the queue is as good as before.
      await queue.enqueue('small')
      expect(await queue.tryTake()).toBe('small')
    },
  )

  it('N30 with an entry that is refused leaves nothing, and of none does no I/O', async () => {
    const queue = proxied()
    expect(await queue.enqueueAll([])).toEqual([])
    expect(proxy.count()).toBe(0)
    const bad = [{ payload: 'a' }, { payload: 'b' }, { payload: 'c', priority: 70_000 }]
    await expect(queue.enqueueAll(bad)).rejects.toThrow('priority')
    expect(proxy.count()).toBe(0)
  })

  it('E3, N29 with a duplicate in it puts in the rest', async () => {
    const queue = proxied()
    await queue.enqueue('one', { id: 'm00001' })
    const states = (await queue.enqueueAll(entries(3))).map(({ status }) => status)
    expect(states).toEqual(['enqueued', 'duplicate', 'enqueued'])
    const twice = [...entries(2, 'y'), ...entries(2, 'z')].map((entry) => ({ ...entry, id: `t${entry.id}` }))
    expect((await queue.enqueueAll(twice)).map(({ status }) => status)).toEqual([
      'enqueued',
      'enqueued',
      'duplicate',
      'duplicate',
    ])
  })
})

describe('one message', () => {
  it('E2 may be nearly as large as a request', async () => {
    const queue = proxied<Uint8Array>({ codec: bytes(), limits: { maxPayloadBytes: 2 * MIB } })
    const payload = Buffer.alloc(1.3 * MIB, 7)
    await queue.enqueue(payload, { id: 'large' })
    const delivery = await queue.receive()
    expect(Buffer.compare(Buffer.from(delivery?.payload ?? []), payload)).toBe(0)
    expect(await delivery?.requeue()).toBe('settled')
    const again = await queue.receive()
    expect(await again?.deadLetter('too much')).toBe('settled')
    const sizes: number[] = []
    for await (const letter of queue.deadLetters) sizes.push(letter.bytes.length)
    expect(sizes).toEqual([payload.length])
    expect(await queue.deadLetters.requeue('large')).toBe(true)
    expect((await queue.take())?.length).toBe(payload.length)
  })

  it('E2 that is larger is refused, also as a result, or for another queue, and the claim stays what it was', async () => {
    const [queue, other] = [proxied(), proxied()]
    const tooMuch = 'x'.repeat(1.6 * MIB)
    await expect(queue.enqueue(tooMuch)).rejects.toBeInstanceOf(LimitError)
    await queue.enqueue('a', { id: 'a' })
    const delivery = await queue.receive()
    await expect(delivery?.ack(tooMuch)).rejects.toBeInstanceOf(LimitError)
    await expect(delivery?.forward(other, tooMuch)).rejects.toBeInstanceOf(LimitError)
    expect(delivery?.settled).toBe(false)
    expect(await delivery?.ack('short')).toBe('settled')
    expect(await queue.outcome('a', { timeoutMs: 0 })).toEqual({ state: 'done', result: 'short' })
    await expectStats(other, { enqueuedTotal: 0 })
  })

  it('N74 is the same bytes, whatever they are', async () => {
    const queue = proxied<Uint8Array>({ codec: bytes() })
    const payloads = [Buffer.alloc(0), Buffer.from([0]), Buffer.from([0, 255, 0, 128]), Buffer.from('ünï\0')]
    for (const payload of payloads) await queue.enqueue(payload)
    for (const payload of payloads) expect(Buffer.from((await queue.take()) ?? 'none')).toEqual(payload)
  })
})

describe('what need not go together', () => {
  it('E1, E2 is split: thousands of calls of one turn, some of them large', async () => {
    const queue = proxied()
    const large = 'x'.repeat(200 * KIB)
    const calls = ids(1_000).map((id, index) => queue.enqueue(index % 50 === 0 ? large : 'x', { id }))
    expect((await Promise.all(calls)).filter(({ status }) => status === 'enqueued')).toHaveLength(1_000)
    const acked: string[] = []
    const flow = pipe(
      queue.source({ until: 'empty' }),
      mergeMap(({ id }) => void acked.push(id), 400),
    )
    expect(await run(flow)).toMatchObject({ acked: 1_000 })
    expect(acked.sort()).toEqual(ids(1_000))
  })

  it('E2 claims and lists more than a reply may hold', async () => {
    const queue = proxied()
    const payload = 'x'.repeat(600 * KIB)
    const count = 12
    for (const id of ids(count)) await queue.enqueue(payload, { id })
    const listed: string[] = []
    for await (const message of queue.peek({ state: 'ready' })) listed.push(message.id)
    expect(listed).toEqual(ids(count))
    const held = await Promise.all(ids(count).map(() => queue.receive({ timeoutMs: 10_000 })))
    expect(held.map((delivery) => delivery?.payload.length)).toEqual(ids(count).map(() => payload.length))
    const claimed: string[] = []
    for await (const message of queue.peek({ state: 'claimed' })) claimed.push(message.id)
    expect(claimed.sort()).toEqual(ids(count))
    expect(await Promise.all(held.map((delivery) => delivery?.deadLetter('large')))).toEqual(
      ids(count).map(() => 'settled'),
    )
    const dead: string[] = []
    for await (const letter of queue.deadLetters) dead.push(letter.id)
    expect(dead).toEqual(ids(count))
    expect(await queue.deadLetters.purgeAll()).toBe(count)
  })

  it('E1 acks and claims a hundred in one turn, though a hundred outcomes go for that, each of which ended by itself', async () => {
    const queue = proxied({ retention: { maxOutcomes: 100 } })
    await queue.enqueueAll(entries(400))
    for (let count = 0; count < 100; count += 1) expect(await (await queue.receive())?.ack()).toBe('settled')
    let handled = 0
    await run(
      pipe(
        queue.source({ until: 'empty' }),
        mergeMap(() => {
          handled += 1
        }, 100),
      ),
    )
    expect(handled).toBe(300)
    await expectStats(queue, { ackedTotal: 400, ready: 0, claimed: 0 })
  })

  it('E1 settles hundreds that are held in every way at once', async () => {
    const backend = rig.backend(proxy.url)
    const [queue, other] = [rig.queue(backend), rig.queue(backend)]
    const count = 320
    for (let from = 0; from < count; from += 80) await queue.enqueueAll(entries(count).slice(from, from + 80))
    const held = await Promise.all(ids(count).map(() => queue.receive({ timeoutMs: 10_000 })))
    expect(new Set(held.map((delivery) => delivery?.id)).size).toBe(count)
    const settling = held.map((delivery, index) => {
      if (index % 4 === 0) return delivery?.ack({ result: index })
      if (index % 4 === 1) return delivery?.requeue({ delayMs: 60_000, reason: 'later' })
      if (index % 4 === 2) return delivery?.deadLetter('bad')
      return delivery?.forward(other, 'on', { id: delivery.id })
    })
    expect(await Promise.all(settling)).toEqual(ids(count).map(() => 'settled'))
    await expectStats(queue, { ackedTotal: 80, delayed: 80, dead: 80, forwardedTotal: 80, claimed: 0, ready: 0 })
    await expectStats(other, { ready: 80 })
    expect(await queue.purge({ state: ['delayed', 'dead'] })).toBe(160)
  })
})

describe('a settlement', () => {
  it.each([
    [1, 60, 'forwarded'],
    [2, 36, 'forwarded'],
    [2, 60, 'refused'],
    [3, 60, 'refused'],
    [24, 1, 'forwarded'],
  ])('E2 that carries to each of %i queues %i messages is %s, whole', async (count, length, state) => {
    const backend = rig.backend(proxy.url)
    const from = rig.queue(backend)
    const to = Array.from({ length: count }, () => rig.queue(backend))
    await from.enqueue('a', { id: 'a' })
    const driver = backend.open(from.name, { close: async () => undefined })
    const request = (seq: number) => ({ session: 'itself', seq, floor: 0 })
    const { claims } = await driver.claim({ token: request(1), max: 1, leaseMs: 30_000, take: false, consumer: 'c' })
    const carry = to.flatMap(({ name }) =>
      ids(length).map((id) => ({ queue: name, message: { id, bytes: Buffer.from('"x"'), priority: 0, delayMs: 0 } })),
    )
    const { id, token } = claims[0] as Claim
    const [result] = await driver.settle([{ id, token, kind: 'ack', carry }], request(2))
    expect(result).toMatchObject({ state })
    if (state === 'refused') expect(result?.error).toMatchObject({ limit: 'etcd max-txn-ops', maximum: 128 })
    for (const queue of to) await expectStats(queue, { ready: state === 'refused' ? 0 : length })
    await expectStats(from, { claimed: state === 'refused' ? 1 : 0 })
    await driver.close()
  })
})

describe('a server that takes less', () => {
  it.each([
    ['--max-request-bytes', String(64 * KIB)],
    ['--max-txn-ops', '8'],
  ])('E1, E2 than it does by default (%s %s) is told by a typed error, soon', async (...args) => {
    const strict = await rig.use(startEtcd({ args }))
    const queue = rig.queue(rig.backend(strict.url))
    const tookMs = await timed(async () => {
      const outcome = await queue.enqueueAll(entries(100, 'x'.repeat(2 * KIB))).catch((error: Error) => error)
      expect(outcome).toBeInstanceOf(MillraceError)
      expect(String(outcome)).toMatch(/too large|too many operations|allows/)
    })
    expect(tookMs).toBeLessThan(5_000)
  })
})
