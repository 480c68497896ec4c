/** A member that dies, comes back, freezes, forgets its past or is full, while queues wait and work. */
import { cp, rm } from 'node:fs/promises'
import { type Delivery, mergeMap, pipe, type Queue, run } from 'millrace'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { expectStats } from '../../support/queues.js'
import { timed } from '../../support/rig.js'
import { startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { startTcpProxy } from '../../support/servers/tcp-proxy.js'
import { connects, expectAllOnce, followed, idsOf, nameOf } from '../../support/traffic.js'
import { pause, until } from '../../support/wait.js'
import { Rig, urlOf } from './rig.js'

describe.concurrent('a server that is down for 10 s', () => {
  it('A8, A28, A30, N78, N79 is told once to each source, and cancelled and waited for as ever', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const backend = rig.backend(server.url)
    const queues = [rig.queue(backend), rig.queue(backend)] as const
    const cancel = new AbortController()
    const waiting = [...queues, queues[0]].map((queue) => followed(queue))
    const cancelled = followed(queues[0], cancel.signal)
    await Promise.all(queues.map((queue) => queue.stats()))
    await until('both watch', async () => (await server.gateway.watchers()) === 2)

    await server.kill()
    const downAt = performance.now()
    await until('each was told', () => waiting.every(({ events }) => connects(events).length === 1))
    // Down is not empty, and a bound is kept.
    const [received, receivedMs] = await Promise.all([
      queues[0].receive({ timeoutMs: 700 }).catch(nameOf),
      timed(() => queues[1].receive({ timeoutMs: 700 }).catch(() => {})),
    ])
    expect(received).toBe('BackendUnavailableError')
    expect(receivedMs).toBeLessThan(2_000)
    await expect(queues[0].size()).rejects.toMatchObject({ name: 'BackendUnavailableError' })
    const cancelMs = await timed(async () => {
      cancel.abort()
      expect(await cancelled.ended).toBe('AbortError')
    })
    expect(cancelMs).toBeLessThan(5_500)
    await pause(Math.max(0, 5_000 - (performance.now() - downAt)))
    const enqueued = queues[0].enqueue('while down', { id: 'd' })
    await pause(Math.max(0, 9_000 - (performance.now() - downAt)))
    expect(waiting.map(({ events }) => connects(events))).toEqual(waiting.map(() => ['reconnecting']))

    await server.restart()
    expect(await enqueued).toEqual({ id: 'd', status: 'enqueued' })
    await queues[1].enqueueAll([{ payload: 'x' }, { payload: 'y' }])
    await until('all have come', () => waiting.flatMap((each) => each.seen).length === 3, 8_000)
    await until('it is told', () => waiting.every(({ events }) => connects(events).length === 2))
    expect(waiting.map(({ events }) => connects(events))).toEqual(waiting.map(() => ['reconnecting', 'reconnected']))
    expect(waiting.flatMap(({ events }) => events).filter(({ type }) => type === 'error')).toEqual([])
    await Promise.all(waiting.map(({ stop }) => stop()))
    expect(await Promise.all(waiting.map(({ ended }) => ended))).toEqual(waiting.map(() => 'complete'))
  })

  it('A8, A12 before it was ever there: a source waits for it, an abort settles, a call says so within 10 s', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    await server.kill()
    const queue = rig.queue(rig.backend(server.url))
    const cancel = new AbortController()
    const [waiting, cancelled] = [followed(queue), followed(queue, cancel.signal)]
    await until('it is told', () => cancelled.events.length > 0)
    const calling = timed(async () => expect(await queue.enqueue('a').catch(nameOf)).toBe('BackendUnavailableError'))
    const cancelMs = await timed(async () => {
      cancel.abort()
      expect(await cancelled.ended).toBe('AbortError')
    })
    expect(cancelMs).toBeLessThan(5_500)
    const callMs = await calling
    expect(callMs).toBeGreaterThan(5_000)
    expect(callMs).toBeLessThan(12_000)
    expect(await Promise.race([waiting.ended, pause(1_000).then(() => 'waits')])).toBe('waits')
    await server.restart()
    await queue.enqueue('b', { id: 'b' })
    await until('it has come', () => waiting.seen.length > 0, 8_000)
    await waiting.stop()
    expect([waiting.seen.at(-1), connects(waiting.events)]).toEqual(['b 1', ['reconnecting', 'reconnected']])
  })
})

/** One of the things that are done to a server in mid-work: how often, and how many times at most. */
type Disturbance = (server: EtcdServer) => Promise<unknown>

async function frozen(server: EtcdServer, ms: number): Promise<void> {
  server.freeze()
  await pause(ms)
  server.thaw()
}

const DISTURBANCES: readonly (readonly [string, number, number, Disturbance])[] = [
  ['C11 forgets its past', 100, Number.POSITIVE_INFINITY, ({ gateway }) => gateway.compact()],
  ['N79 is killed and started again', 900, 5, (server) => server.restart()],
  ['A10, N80 freezes for 4 s', 500, 1, (server) => frozen(server, 4_000)],
]

describe.concurrent('a server that, in mid-work,', () => {
  it.for(DISTURBANCES)('%s: everything is handled once', async ([, everyMs, most, disturb], { onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const queues = [1, 2, 3].map(() => rig.queue(rig.backend(server.url), {}, 'work'))
    await expectAllOnce(queues, () => disturb(server), { everyMs, most, count: 50, betweenMs: 50, withinMs: 20_000 })
  })
})

describe.concurrent('a server that is put back to a copy of before', () => {
  it('N79 goes on from there: what came since is gone, and what comes is handled', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const [queue, producer] = [1, 2].map(() => rig.queue(rig.backend(server.url), {}, 'work')) as [
      Queue<string>,
      Queue<string>,
    ]
    const waiting = followed(queue)
    await producer.enqueue('before', { id: 'before' })
    await until('it is acked', async () => (await producer.stats()).ackedTotal === 1)
    await server.kill()
    const copy = `${server.dir}-copy`
    onTestFinished(() => rm(copy, { recursive: true, force: true }))
    await cp(server.dir, copy, { recursive: true })
    await server.restart()
    for (const id of idsOf(20)) await producer.enqueue(id, { id })
    await until('all have come', () => waiting.seen.length === 21, 8_000)

    await server.kill()
    await rm(server.dir, { recursive: true })
    await cp(copy, server.dir, { recursive: true })
    await server.restart()
    const again = ['x', 'y', 'z']
    for (const id of again) await producer.enqueue(id, { id })
    await until('these have too', () => waiting.seen.length === 24, 8_000)
    expect(waiting.seen.slice(21)).toEqual(again.map((id) => `${id} 1`))
    await waiting.stop()
    await expectStats(producer, { ready: 0, claimed: 0 })
  })
})

describe.concurrent('a server that was down for longer than a lease', () => {
  it('E16 gives every lease its whole term again: what is held is held still, or lost, told, and handled elsewhere', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const queue = rig.queue(rig.backend(server.url), { leaseMs: 2_000 })
    const other = rig.queue(rig.backend(server.url), {}, queue.name)
    await queue.enqueue('a', { id: 'a' })
    const source = queue.source()
    const events = eventsOf(source)
    const deliveries: Delivery<string>[] = []
    source.subscribe((delivery) => void deliveries.push(delivery))
    await until('it is held', () => deliveries.length === 1)
    await server.kill()
    // By our own clock it is over, whatever the server will say.
    await until('it is told', () => deliveries[0]?.signal.aborted === true, 3_500)
    expect(events.filter(({ type }) => type === 'lease-expired')).toHaveLength(1)
    await source.stop({ graceMs: 0 })
    await server.restart()
    const again = await other.receive({ timeoutMs: 8_000 })
    expect(again?.id).toBe('a')
    expect(await deliveries[0]?.ack()).toBe('stale')
    expect(await again?.ack()).toBe('settled')
    await expectStats(other, { ackedTotal: 1, ready: 0, claimed: 0 })
  })
})

describe.concurrent('a queue that is paused', () => {
  it('N69 stays so over a restart of the server, for who waits and who comes', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const queue = rig.queue(rig.backend(server.url))
    const waiting = followed(queue)
    await queue.pause()
    await server.restart()
    const other = rig.queue(rig.backend(server.url), {}, queue.name)
    await other.enqueue('a', { id: 'a' })
    expect(await other.tryReceive()).toBe(undefined)
    expect(await other.stats()).toMatchObject({ paused: true, ready: 1 })
    await pause(1_500)
    expect(waiting.seen).toEqual([])
    await other.resume()
    await until('it has come', () => waiting.seen.length === 1)
    await waiting.stop()
  })
})

describe.concurrent('a server that has no space', () => {
  it('E21 says so by a typed error, waiters stay, nothing is lost, and all goes on when there is some', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd({ quotaBytes: 2 * 1024 * 1024 }))
    const { gateway } = server
    const queue = rig.queue(rig.backend(server.url))
    const other = rig.queue(rig.backend(server.url), {}, queue.name)
    const waiting = followed(rig.queue(rig.backend(server.url)))
    await queue.enqueueAll(['a', 'b'].map((id) => ({ payload: id, id })))
    const a = await queue.receive()
    const filling = async () => {
      for (let index = 0; ; index += 1) await gateway.put(`fill/${index}`, Buffer.alloc(200_000))
    }
    await filling().catch(() => {})
    expect((await gateway.call('maintenance/alarm', { action: 'GET' })).alarms).toMatchObject([{ alarm: 'NOSPACE' }])

    const tookMs = await timed(async () => {
      const error = await queue.enqueue('c').catch((reason: Error) => reason)
      expect(error).toMatchObject({ name: 'BackendError', code: 'ERR_MILLRACE_BACKEND' })
      expect(String(error)).toContain('space')
    })
    expect(tookMs).toBeLessThan(3_000)
    // What only reads is as well as ever.
    expect(await other.stats()).toMatchObject({ ready: 1, claimed: 1 })
    const settling = a?.ack().catch((error: Error) => error.name)
    await pause(1_000)
    expect(await Promise.race([waiting.ended, pause(100).then(() => 'waits')])).toBe('waits')

    await gateway.deletePrefix('fill/')
    await gateway.compact()
    await gateway.call('maintenance/defragment', {}, 20_000)
    for (const { memberID } of (await gateway.call('maintenance/alarm', { action: 'GET' })).alarms) {
      await gateway.call('maintenance/alarm', { action: 'DEACTIVATE', memberID, alarm: 'NOSPACE' })
    }
    expect(await queue.enqueue('c', { id: 'c' })).toEqual({ id: 'c', status: 'enqueued' })
    expect(['settled', 'BackendError']).toContain(await settling)
    const left: (string | undefined)[] = []
    for (let count = 0; count < 2; count += 1) {
      const delivery = await other.receive({ timeoutMs: 5_000 })
      left.push(delivery?.id)
      await delivery?.ack()
    }
    expect(left).toEqual(['b', 'c'])
    await waiting.stop()
    expect(waiting.events.filter(({ type }) => type === 'reconnecting').length).toBeLessThan(3)
    await queue.close({ graceMs: 0 })
    const stats = await other.stats()
    expect(stats.ackedTotal + stats.ready + stats.claimed).toBe(3)
  })
})

describe.concurrent('closing', () => {
  it('D1 while the server is down, and when it dies meanwhile, settles in its bound', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const line = await rig.use(startTcpProxy(server.port))
    const [idle, working, dying] = [1, 2, 3].map(() => rig.queue(rig.backend(urlOf(line)), { leaseMs: 20_000 })) as [
      Queue<string>,
      Queue<string>,
      Queue<string>,
    ]
    const waiting = followed(idle)
    await Promise.all([working, dying].map((queue) => queue.enqueue('a', { id: 'a' })))
    await Promise.all([working, dying].map((queue) => queue.receive()))
    await idle.stats()
    // It dies when it has done what the one that is being closed asked for, and before it says so.
    line.hold('replies')
    const onServer = rig.queue(rig.backend(server.url), {}, dying.name)
    const closingMs = timed(async () => {
      expect(await dying.close({ graceMs: 300 })).toEqual({ released: 0, settledDuringGrace: 0, abandoned: 1 })
    })
    await until('the release has arrived', async () => (await onServer.stats()).ready === 1)
    await server.kill()
    line.resetAll()
    const tookMs = await Promise.all([
      closingMs,
      timed(() => idle.close({ graceMs: 300 })),
      timed(async () => expect(await working.close({ graceMs: 300 })).toMatchObject({ released: 0, abandoned: 1 })),
    ])
    for (const ms of tookMs) expect(ms).toBeLessThan(5_300 + 1_000 + 2_500)
    expect(await waiting.ended).toBe('ClosedError')
    await server.restart()
    line.resume()
    await expectStats(onServer, { ready: 1, claimed: 0, enqueuedTotal: 1 })
  })

  it('D5 with a handler that never ends: nothing is asked of the server any more, and no connection stays', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const proxy = await rig.use(startEtcdProxy(server.port))
    const queue = rig.queue(rig.backend(proxy.url), { leaseMs: 6_000 })
    let started = 0
    const stuck = mergeMap(() => {
      started += 1
      return new Promise(() => {})
    }, 2)
    const running = run(pipe(queue.source(), stuck)).catch(nameOf)
    await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
    await until('they are stuck', () => started === 2)
    const closeMs = await timed(async () =>
      expect(await queue.close({ graceMs: 1_000 })).toMatchObject({ released: 2 }),
    )
    expect(closeMs).toBeLessThan(1_700)
    expect(await running).toBe('ClosedError')
    await until('no connection stays', () => proxy.connections === 0, 1_000)
    const asked = proxy.count()
    await pause(3_000)
    expect(proxy.calls.slice(asked).map(({ method }) => method)).toEqual([])
    expect(await server.gateway.leases()).toEqual([])
    await expectStats(rig.queue(rig.backend(server.url), {}, queue.name), { ready: 2, claimed: 0 })
  })

  it('D3 a queue whose source is idle takes no time', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const proxy = await rig.use(startEtcdProxy(server.port))
    const queue = rig.queue(rig.backend(proxy.url))
    const running = run(queue.source()).catch(nameOf)
    await queue.stats()
    await until('it watches', () => proxy.messagesIn('Watch/Watch') > 0)
    expect(await timed(() => queue.close())).toBeLessThan(300)
    expect(await running).toBe('ClosedError')
    await until('no connection stays', () => proxy.connections === 0, 1_000)
  })
})

describe('closing in an outage', () => {
  it('A12, D9 leaves no timer behind, also where the client is just waiting to connect again', async () => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    await server.kill()
    const timers = () => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length
    await pause(500)
    const before = timers()
    const queues = Array.from({ length: 20 }, () => rig.queue(rig.backend(server.url)))
    for (const queue of queues) queue.source().subscribe({ error: () => {} })
    const answers = queues.map((queue) => queue.enqueue('a').catch(nameOf))
    await pause(2_000)
    for (const queue of queues) await Promise.all([queue.close({ graceMs: 0 }), pause(40)])
    await until('no timer is left', () => timers() <= before, 4_000)
    expect(await Promise.all(answers)).toEqual(queues.map(() => 'ClosedError'))
  })

  it('D9, C5 a backend, at once or while it connects, leaves nothing open', async () => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startEtcd())
    const resources = () => process.getActiveResourcesInfo().length
    await server.gateway.leases()
    const before = resources()
    for (let round = 0; round < 16; round += 1) {
      const backend = rig.backend(server.url)
      const queue = rig.queue(backend)
      if (round % 2 === 1) queue.source().subscribe({ error: () => {} })
      if (round % 4 > 1) queue.enqueue('a').catch(() => {})
      await pause(round % 8)
      await queue.close({ graceMs: 0 })
      await backend.close()
    }
    await until('nothing is open', () => resources() <= before, 3_000)
    expect(await server.gateway.leases()).toEqual([])
    await until('nobody watches', async () => (await server.gateway.watchers()) === 0)
  })
})
