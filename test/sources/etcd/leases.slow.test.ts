/** Leases of etcd: when they are there, what becomes of claims when they are gone, and that none stays. */
import { type Delivery, mergeMap, pipe, type Queue, run, type SourceEvent } from 'millrace'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { expectStats } from '../../support/queues.js'
import { type Finished, timed } from '../../support/rig.js'
import { type EtcdProxy, ofMethod, startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { gate, pause, turn, until } from '../../support/wait.js'
import { leaseStates, Rig } from './rig.js'

const LEASE_MS = 2_000
/** How long a member may take to notice that a lease is over; it looks twice a second. */
const SLACK_MS = 1_000

interface Ground {
  readonly rig: Rig
  readonly server: EtcdServer
  /** Of all keys of this test. */
  readonly prefix: string
  readonly proxy: EtcdProxy
  /** Talks through the proxy. */
  readonly queue: Queue<string>
  /** The same queue as another process has it, past the proxy. */
  readonly other: Queue<string>
  /** On a server of its own all there are, otherwise those that keep something of this test alive. */
  leases(): Promise<string[]>
}

let shared: EtcdServer
let prefixes = 0

beforeAll(async () => {
  shared = await startEtcd()
})

afterAll(() => shared.stop())

/** On a server that others use as well. */
function groundOf(finished: Finished, leaseMs = LEASE_MS): Promise<Ground> {
  const leases = async (prefix: string) => {
    const stored = (await shared.gateway.list(prefix)).map(({ lease }) => lease)
    return [...new Set(stored)].filter((lease) => lease !== '0')
  }
  return groundOn(shared, new Rig(finished), leaseMs, leases)
}

/** On a server of its own, where every lease counts. */
async function ownGround(finished: Finished, leaseMs = LEASE_MS): Promise<Ground> {
  const rig = new Rig(finished)
  const server = await rig.use(startEtcd())
  return groundOn(server, rig, leaseMs, () => server.gateway.leases())
}

async function groundOn(
  server: EtcdServer,
  rig: Rig,
  leaseMs: number,
  leases: (prefix: string) => Promise<string[]>,
): Promise<Ground> {
  prefixes += 1
  const prefix = `${prefixes}/`
  const proxy = await rig.use(startEtcdProxy(server.port))
  const queue = rig.queue(rig.backend(proxy.url, { prefix }), { leaseMs })
  const other = rig.queue(rig.backend(server.url, { prefix }), {}, queue.name)
  return { rig, server, prefix, proxy, queue, other, leases: () => leases(prefix) }
}

const isGrant = ofMethod('Lease/LeaseGrant')
const entries = (...ids: readonly string[]) => ids.map((id) => ({ payload: id, id }))
const of = (events: readonly SourceEvent[], ...types: readonly SourceEvent['type'][]) =>
  events.filter(({ type }) => types.includes(type)).map(({ type }) => type)

async function revokeAll({ server, leases }: Ground): Promise<void> {
  for (const lease of await leases()) await server.gateway.revoke(lease)
}

async function held(queue: Queue<string>): Promise<Delivery<string>> {
  const delivery = await queue.receive({ timeoutMs: 8_000 })
  if (delivery === undefined) throw new Error('nothing was ready')
  return delivery
}

describe.concurrent('a lease', () => {
  it('is granted with the first claim, one for all of a consumer, and revoked when it closes', async ({
    onTestFinished,
  }) => {
    const { server, proxy, queue, other } = await ownGround(onTestFinished, 20_000)
    await queue.enqueueAll(entries('a', 'b', 'c', 'd'))
    expect(await queue.tryReceive()).toMatchObject({ id: 'a' })
    await queue.stats()
    for (const id of ['b', 'c']) expect(await queue.receive()).toMatchObject({ id })
    expect(proxy.count(isGrant)).toBe(1)
    const leases = await server.gateway.leases()
    expect(leases).toHaveLength(1)
    expect((await server.gateway.lease(leases[0] as string)).grantedS).toBe(20)
    expect((await server.gateway.lease(leases[0] as string)).keys.length).toBeGreaterThan(0)
    const waiting = [1, 2, 3, 4].map(() => other.receive({ timeoutMs: 5_000 }))
    const tookMs = await timed(async () => {
      expect(await queue.close({ graceMs: 0 })).toMatchObject({ released: 3, abandoned: 0 })
      const back = await Promise.all(waiting)
      expect(back.map((delivery) => [delivery?.id, delivery?.attempt]).sort()).toEqual([
        ['a', 1],
        ['b', 1],
        ['c', 1],
        ['d', 1],
      ])
    })
    expect(tookMs).toBeLessThan(1_000)
    expect(await server.gateway.leases()).toHaveLength(1)
    await other.close({ graceMs: 0 })
    expect(await server.gateway.leases()).toEqual([])
  })

  it('is not granted to who only enqueues, looks, and waits for nothing', async ({ onTestFinished }) => {
    const { server, proxy, queue } = await ownGround(onTestFinished)
    await queue.enqueue('a', { delayMs: 60_000 })
    await queue.stats()
    for await (const _ of queue.peek({ state: 'delayed' }));
    await queue.pause()
    await queue.resume()
    expect(proxy.count(isGrant)).toBe(0)
    expect(await server.gateway.leases()).toEqual([])
  })

  it('N42, B4 is renewed for as long as a handler takes, also while the queue is being closed', async ({
    onTestFinished,
  }) => {
    const leaseMs = 4_000
    const { queue, other } = await groundOf(onTestFinished, leaseMs)
    await queue.enqueueAll(entries('a', 'b'))
    const [a, b] = [await held(queue), await held(queue)]
    const waiting = other.receive({ timeoutMs: 2 * (leaseMs + SLACK_MS) })
    await pause(leaseMs + SLACK_MS)
    const closing = queue.close({ graceMs: 2 * leaseMs })
    await pause(leaseMs + SLACK_MS)
    expect([a.signal.reason?.name, await a.ack()]).toEqual(['AbortError', 'settled'])
    expect(await b.ack()).toBe('settled')
    expect(await closing).toEqual({ released: 0, settledDuringGrace: 2, abandoned: 0 })
    expect(await waiting).toBe(undefined)
    await expectStats(other, { ackedTotal: 2, ready: 0, claimed: 0 })
  })

  it('N84 is renewed for one handler no longer than its cap, and for the others on', async ({ onTestFinished }) => {
    const { queue, other } = await groundOf(onTestFinished, 3_000)
    await queue.enqueueAll(entries('stuck', 'fine'))
    const source = queue.source({ maxLeaseMs: 3_000 })
    const events = eventsOf(source)
    const whys: unknown[] = []
    let begun = 0
    // Neither ends by itself, so that both are kept and nothing else is claimed.
    const work = (delivery: Delivery<string>) => {
      begun += 1
      delivery.signal.addEventListener('abort', () => whys.push([delivery.id, delivery.signal.reason.why]))
      const proof = setInterval(() => delivery.id === 'fine' && delivery.progress(), 500)
      onTestFinished(() => clearInterval(proof))
      return new Promise(() => {})
    }
    const running = run(pipe(source, mergeMap(work, 2)))
    running.catch(() => {})
    await until('both are held', () => begun === 2)
    const moved = await other.receive({ timeoutMs: 12_000 })
    expect(moved).toMatchObject({ id: 'stuck', attempt: 2 })
    expect(await moved?.ack()).toBe('settled')
    expect(of(events, 'stuck')).toEqual(['stuck'])
    expect(whys).toEqual([['stuck', 'capped']])
    await source.stop({ graceMs: 0 })
    await expectStats(other, { ready: 1, claimed: 0, ackedTotal: 1 })
  })

  it('may be another for a source that asks for a longer one', async ({ onTestFinished }) => {
    const ground = await groundOf(onTestFinished)
    const { server, queue, other } = ground
    await queue.enqueueAll(entries('a', 'b'))
    const long = queue.source({ leaseMs: 60_000 })
    const gotten = gate<Delivery<string>>()
    long.subscribe({ next: (delivery) => gotten.open(delivery), error: () => {} })
    const a = await gotten.promise
    const b = await held(queue)
    const granted = await Promise.all(
      (await ground.leases()).map(async (id) => (await server.gateway.lease(id)).grantedS),
    )
    expect(granted.sort()).toEqual([2, 60])
    expect(a.leaseExpiresAt - b.leaseExpiresAt).toBeGreaterThan(50_000)
    await other.size()
    await queue.close({ graceMs: 0 })
    expect(await ground.leases()).toEqual([])
  })
})

describe.concurrent('a lease that is revoked by somebody', () => {
  it('E8, N81 gives its claims to others, aborts the handlers, and the next claims are under a new one', async ({
    onTestFinished,
  }) => {
    const ground = await groundOf(onTestFinished, 20_000)
    const { queue, other } = ground
    await queue.enqueueAll(entries('a', 'b'))
    const source = queue.source({ credit: 5 })
    const events = eventsOf(source)
    const deliveries: Delivery<string>[] = []
    source.subscribe({ next: (delivery) => void deliveries.push(delivery), error: () => {} })
    await until('both are held', () => deliveries.length === 2)
    const [first] = await ground.leases()
    await other.pause()
    await revokeAll(ground)
    await until('both are told', () => deliveries.every(({ signal }) => signal.aborted), 3_000)
    expect(deliveries.map(({ signal }) => signal.reason.code)).toEqual([
      'ERR_MILLRACE_LEASE_LOST',
      'ERR_MILLRACE_LEASE_LOST',
    ])
    expect(await Promise.all(deliveries.map((delivery) => delivery.ack()))).toEqual(['stale', 'stale'])
    await until('they are back', async () => (await other.stats()).ready === 2, 3_000)
    await other.resume()
    await until('they came again', () => deliveries.length === 4, 5_000)
    expect(
      deliveries
        .slice(2)
        .map(({ id, attempt }) => [id, attempt])
        .sort(),
    ).toEqual([
      ['a', 2],
      ['b', 2],
    ])
    const [second] = await ground.leases()
    expect(second).not.toBe(first)
    expect(await Promise.all(deliveries.slice(2).map((delivery) => delivery.ack()))).toEqual(['settled', 'settled'])
    expect(of(events, 'lease-expired', 'lease-lost')).toHaveLength(2)
    expect(leaseStates(events)).toEqual(['expired', 'restored'])
    expect(of(events, 'error')).toEqual([])
    await source.stop()
    await expectStats(other, { ackedTotal: 2, ready: 0, claimed: 0 })
  })

  it('E7 between two claims costs no attempt, and no call', async ({ onTestFinished }) => {
    const ground = await groundOf(onTestFinished)
    const { queue } = ground
    for (let round = 0; round < 5; round += 1) {
      await queue.enqueue('a', { id: `a${round}` })
      await revokeAll(ground)
      const delivery = await held(queue)
      expect([delivery.id, delivery.attempt, await delivery.ack()]).toEqual([`a${round}`, 1, 'settled'])
    }
  })

  it('E7 while a transaction that claims is on its way: it is under a new one, and once', async ({
    onTestFinished,
  }) => {
    const ground = await ownGround(onTestFinished)
    const { proxy, queue } = ground
    await queue.enqueueAll(entries('first', 'a'))
    expect(await (await held(queue)).ack()).toBe('settled')
    const seen: string[] = []
    await queue.enqueueAll(Array.from({ length: 20 }, (_, index) => ({ payload: 'x', id: `m${index}` })))
    const endsAt = performance.now() + 1_000
    const revoking = (async () => {
      for (; seen.length <= 5 && performance.now() < endsAt; await pause(5)) await revokeAll(ground)
    })()
    const receiving = (async () => {
      while (seen.length < 21) {
        const delivery = await queue.receive({ timeoutMs: 10_000 })
        if (delivery !== undefined && (await delivery.ack()) === 'settled') seen.push(delivery.id)
      }
    })()
    await Promise.all([revoking, receiving])
    expect(new Set(seen).size).toBe(21)
    expect(proxy.count(isGrant)).toBeGreaterThan(1)
    await expectStats(queue, { ackedTotal: 22, ready: 0, claimed: 0, dead: 0 })
  })

  it('C9 with all others of the server: handlers abort, all is claimed again, nothing is lost', async ({
    onTestFinished,
  }) => {
    const ground = await groundOf(onTestFinished, 20_000)
    const { rig, server, queue, prefix } = ground
    const queues = [queue, ...[1, 2].map(() => rig.queue(rig.backend(server.url, { prefix }), {}, queue.name))]
    await queue.enqueueAll(Array.from({ length: 30 }, (_, index) => ({ payload: 'x', id: `m${index}` })))
    const handled = new Map<string, number>()
    let aborted = 0
    let held = 0
    const runs = queues.map((each) =>
      run(
        pipe(
          each.source(),
          mergeMap(async ({ id, attempt, signal }) => {
            if (attempt === 1) {
              held += 1
              await new Promise((resolve) => signal.addEventListener('abort', resolve))
              aborted += 1
              throw signal.reason
            }
            handled.set(id, (handled.get(id) ?? 0) + 1)
          }, 10),
        ),
      ),
    )
    for (const each of runs) each.catch(() => {})
    await until('all are held', () => held === 30)
    await revokeAll(ground)
    await until('all were told', () => aborted === 30, 5_000)
    await until('all are handled', () => handled.size === 30, 10_000)
    await Promise.all(queues.map((each) => each.close()))
    expect([...handled.values()].every((times) => times === 1)).toBe(true)
    const after = rig.queue(rig.backend(server.url, { prefix }), {}, queue.name)
    await expectStats(after, { ackedTotal: 30, ready: 0, claimed: 0 })
  })
})

describe.concurrent('a lease that cannot be had', () => {
  it('E10 twice is had at the third try', async ({ onTestFinished }) => {
    const ground = await groundOf(onTestFinished)
    const { proxy, queue } = ground
    await queue.enqueueAll(entries('a', 'b'))
    expect(await (await held(queue)).ack()).toBe('settled')
    const lie = proxy.lie({ code: 14, message: 'etcdserver: no leader', times: 2, match: isGrant })
    await revokeAll(ground)
    const delivery = await held(queue)
    expect([delivery.id, delivery.attempt, lie.left]).toEqual(['b', 1, 0])
    expect(await delivery.ack()).toBe('settled')
  })

  it('E11 is asked for no more when the queue is closed meanwhile, and none stays', async ({ onTestFinished }) => {
    const { server, proxy, queue } = await ownGround(onTestFinished)
    await queue.enqueueAll(entries('a', 'b'))
    const lie = proxy.lie({ code: 14, message: 'etcdserver: no leader', times: 1_000, match: isGrant })
    const receiving = queue.receive().catch(({ name }: Error) => name)
    await until('it tries', () => proxy.count(isGrant) > 1, 8_000)
    expect(await timed(() => queue.close({ graceMs: 0 }))).toBeLessThan(6_000)
    expect(await receiving).toBe('ClosedError')
    lie.end()
    const tried = proxy.count(isGrant)
    await pause(2_500)
    expect(proxy.count(isGrant)).toBe(tried)
    expect(await server.gateway.leases()).toEqual([])
  })

  it('C5 leaks nothing when its consumer leaves in the turn of its claim, or any later one', async ({
    onTestFinished,
  }) => {
    const { rig, server, queue, prefix } = await ownGround(onTestFinished)
    await queue.enqueueAll(entries('a', 'b', 'c'))
    for (let round = 0; round < 12; round += 1) {
      const each = rig.queue(rig.backend(server.url, { prefix }), { leaseMs: 60_000 }, queue.name)
      const cancel = new AbortController()
      const receiving = each.receive({ signal: cancel.signal }).catch(() => undefined)
      for (let turns = 0; turns < round * 4; turns += 1) await turn()
      cancel.abort()
      await receiving
      await each.close({ graceMs: 0 })
    }
    await until('no lease is left', async () => (await server.gateway.leases()).length === 0, 3_000)
    await expectStats(queue, { ready: 3, claimed: 0 })
    expect(await held(queue)).toMatchObject({ attempt: 1 })
  })
})

describe.concurrent('what is done to records by hand', () => {
  it('B10, E22 a claim whose lease has lost its key is found, and goes to others', async ({ onTestFinished }) => {
    const { server, queue, other, prefix } = await groundOf(onTestFinished, 20_000)
    await queue.enqueueAll(entries('a', 'b'))
    const [a, b] = [await held(queue), await held(queue)]
    const waiting = [other.receive({ timeoutMs: 15_000 }), other.receive({ timeoutMs: 15_000 })]
    await other.size()
    const marked = (await server.gateway.list(prefix)).filter(({ lease }) => lease !== '0')
    expect(marked.length).toBeGreaterThan(0)
    for (const { key } of marked) await server.gateway.delete(key)
    const again = await Promise.all(waiting)
    expect(again.map((delivery) => [delivery?.id, delivery?.attempt]).sort()).toEqual([
      ['a', 2],
      ['b', 2],
    ])
    expect([await a.ack(), await b.ack()]).toEqual(['stale', 'stale'])
    expect(await Promise.all(again.map((delivery) => delivery?.ack()))).toEqual(['settled', 'settled'])
    await expectStats(other, { ackedTotal: 2, claimed: 0, ready: 0 })
  })

  it('B6, N76 a claim whose message is purged is renewed no more, and nothing is thrown', async ({
    onTestFinished,
  }) => {
    const { queue, other } = await groundOf(onTestFinished)
    await queue.enqueueAll(entries('gone', 'stays'))
    const [gone, stays] = [await held(queue), await held(queue)]
    expect(await other.cancel('gone')).toBe('cancelling')
    expect(await other.purge({ state: 'claimed' })).toBe(2)
    expect(await gone.extend(60_000)).toBe('stale')
    await until('both are told', () => gone.signal.aborted && stays.signal.aborted, 6_000)
    expect([await gone.ack(), await stays.requeue()]).toEqual(['stale', 'stale'])
    await expectStats(other, { claimed: 0, ready: 0, enqueuedTotal: 2 })
  })

  it('E23 the deletion of a marker wakes a consumer that waits, without a poll', async ({ onTestFinished }) => {
    const ground = await groundOf(onTestFinished, 60_000)
    const { rig, server, queue, prefix } = ground
    await queue.enqueueAll(entries('a'))
    await held(queue)
    // Many queues share the poll, so that it comes seldom.
    const backend = rig.backend(server.url, { prefix })
    for (let count = 0; count < 15; count += 1)
      rig
        .queue(backend)
        .source()
        .subscribe({ error: () => {} })
    const waiting = rig.queue(backend, {}, queue.name).receive({ timeoutMs: 20_000 })
    await pause(1_000)
    const tookMs = await timed(async () => {
      await revokeAll(ground)
      expect(await waiting).toMatchObject({ id: 'a', attempt: 2 })
    })
    expect(tookMs).toBeLessThan(1_000)
  })
})

describe('closing', () => {
  it('N65, N66, N67 at any step of a claim gives all back at once, and leaves no lease', async ({ onTestFinished }) => {
    const { rig, server, queue, prefix } = await ownGround(onTestFinished)
    await queue.enqueueAll(entries('a', 'b', 'c', 'd', 'e'))
    for (let round = 0; round < 12; round += 1) {
      const each = rig.queue(rig.backend(server.url, { prefix }), { leaseMs: 60_000 }, queue.name)
      const deliveries: Delivery<string>[] = []
      each.source({ credit: 3 }).subscribe({ next: (delivery) => void deliveries.push(delivery), error: () => {} })
      await pause(2 * round)
      expect(await each.close({ graceMs: 0 })).toMatchObject({ abandoned: 0 })
      await expectStats(queue, { ready: 5, claimed: 0 })
    }
    await until('no lease is left', async () => (await server.gateway.leases()).length === 0, 3_000)
    expect(await held(queue)).toMatchObject({ id: 'a', attempt: 1 })
  })
})
