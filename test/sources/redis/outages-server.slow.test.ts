/** A server that dies, comes back, forgets, freezes, or throws everybody out, while queues wait and work. */
import { mergeMap, pipe, run } from 'millrace'
import { describe, expect, it, onTestFinished } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import { expectStats } from '../../support/queues.js'
import { timed } from '../../support/rig.js'
import { startProxy } from '../../support/servers/proxy.js'
import { type RedisServer, startRedis } from '../../support/servers/redis-server.js'
import { startRelay } from '../../support/servers/relay.js'
import { connects, expectAllOnce, followed, nameOf } from '../../support/traffic.js'
import { pause, until } from '../../support/wait.js'
import type { Said } from './outages-child.js'
import { Rig, urlOf } from './rig.js'

const CHILD = await bundled(new URL('./outages-child.ts', import.meta.url))

describe.concurrent('a server that is down for 10 s', () => {
  it('A8, A28, A30, N78, N79 is told once to each source, called now and then, and cancelled and waited for as ever', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startRedis({ appendOnly: true }))
    const relay = await rig.use(startRelay(server.port))
    const backend = rig.backend(urlOf(relay))
    const queues = [rig.queue(backend), rig.queue(backend)] as const
    const cancel = new AbortController()
    const waiting = [...queues, queues[0]].map((queue) => followed(queue))
    const cancelled = followed(queues[0], cancel.signal)
    const iterated = queues[1].source()[Symbol.asyncIterator]()
    // A third consumer, which takes one and keeps it.
    let taken = 0
    const next = iterated.next().then(({ done }) => (taken += done ? 0 : 1))
    await Promise.all(queues.map((queue) => queue.stats()))
    await until('all listen', () => relay.subscribers === 1)

    await server.kill()
    const made = relay.made
    const downAt = performance.now()
    await until('each was told', () => waiting.every(({ events }) => connects(events).length === 1), 4_000)
    // Down is not empty, and a bound is kept.
    const [received, receivedMs] = await Promise.all([
      queues[0].receive({ timeoutMs: 700 }).catch(nameOf),
      timed(() => queues[1].receive({ timeoutMs: 700 }).catch(() => {})),
    ])
    expect(received).toBe('BackendUnavailableError')
    expect(receivedMs).toBeLessThan(2_000)
    const cancelMs = await timed(async () => {
      cancel.abort()
      expect(await cancelled.ended).toBe('AbortError')
    })
    expect(cancelMs).toBeLessThan(5_500)
    await pause(5_000 - (performance.now() - downAt))
    const enqueued = queues[0].enqueue('while down', { id: 'd' })
    await pause(9_000 - (performance.now() - downAt))
    // Commands and hints have a connection each, made anew after a pause that grows to 2 s.
    expect(relay.made - made).toBeLessThan(60)
    expect(waiting.map(({ events }) => connects(events))).toEqual(waiting.map(() => ['reconnecting']))

    await server.restart()
    expect(await enqueued).toEqual({ id: 'd', status: 'enqueued' })
    await queues[1].enqueueAll([{ payload: 'x' }, { payload: 'y' }])
    const seen = () => waiting.flatMap((each) => each.seen).length
    await until('all have come', () => seen() + taken === 3, 8_000)
    await iterated.return?.()
    await next
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
    const server = await rig.use(startRedis({ appendOnly: true }))
    await server.kill()
    const backend = rig.backend(server.url)
    const queue = rig.queue(backend)
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
    expect(callMs).toBeGreaterThan(9_000)
    expect(callMs).toBeLessThan(11_500)
    expect(await Promise.race([waiting.ended, pause(1_000).then(() => 'waits')])).toBe('waits')
    await server.restart()
    await queue.enqueue('b', { id: 'b' })
    await until('it has come', () => waiting.seen.length > 0, 5_000)
    await waiting.stop()
    expect([waiting.seen.at(-1), connects(waiting.events)]).toEqual(['b 1', ['reconnecting', 'reconnected']])
  })
})

/** One of the things that are done to a server in mid-work: how often, and how many times at most. */
type Disturbance = (server: RedisServer) => Promise<unknown>

/** What it does, how often in milliseconds, and how many times: a machine that is slow must have the time to recover. */
const DISTURBANCES: readonly (readonly [string, number, number, Disturbance])[] = [
  ['R2, A24 forgets its scripts', 20, Number.POSITIVE_INFINITY, (server) => server.command('SCRIPT', 'FLUSH')],
  ['A14, A30 throws out who sends commands', 100, 30, (server) => server.command('CLIENT', 'KILL', 'TYPE', 'normal')],
  ['A26, R10 throws out who listens', 100, 30, (server) => server.command('CLIENT', 'KILL', 'TYPE', 'pubsub')],
  ['N79, R2 is killed and started again', 700, 5, (server) => server.restart()],
  [
    'A10, N80 freezes for 4 s',
    500,
    1,
    async (server) => {
      server.freeze()
      await pause(4_000)
      server.thaw()
    },
  ],
]

describe.concurrent('a server that, in mid-work,', () => {
  it.for(DISTURBANCES)('%s: everything is handled once', async ([, everyMs, most, disturb], { onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startRedis({ appendOnly: true }))
    const queues = [1, 2, 3].map(() => rig.queue(rig.backend(server.url), {}, 'work'))
    await expectAllOnce(queues, () => disturb(server), { everyMs, most, count: 300, betweenMs: 5, withinMs: 15_000 })
  })
})

describe.concurrent('closing', () => {
  it('D1 while the server is down, and when it dies meanwhile, settles in its bound', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startRedis({ appendOnly: true }))
    const proxy = await rig.use(startProxy(server.port))
    const idle = rig.queue(rig.backend(proxy.url), { leaseMs: 20_000 })
    const working = rig.queue(rig.backend(proxy.url), { leaseMs: 20_000 })
    const dying = rig.queue(rig.backend(proxy.url), { leaseMs: 20_000 })
    const waiting = followed(idle)
    await Promise.all([working, dying].map((queue) => queue.enqueue('a', { id: 'a' })))
    await Promise.all([working, dying].map((queue) => queue.receive()))
    await idle.stats()
    // It dies when it has done what the one that is being closed asked for, and before it says so.
    proxy.hold('replies')
    const onServer = rig.queue(rig.backend(server.url), {}, dying.name)
    const closingMs = timed(async () => {
      expect(await dying.close({ graceMs: 300 })).toEqual({ released: 0, settledDuringGrace: 0, abandoned: 1 })
    })
    await until('the release has arrived', async () => (await onServer.stats()).ready === 1)
    await server.kill()
    proxy.resetAll()
    const tookMs = await Promise.all([
      closingMs,
      timed(() => idle.close({ graceMs: 300 })),
      timed(async () => expect(await working.close({ graceMs: 300 })).toMatchObject({ released: 0, abandoned: 1 })),
    ])
    for (const ms of tookMs) expect(ms).toBeLessThan(5_300 + 1_000 + 700)
    expect(await waiting.ended).toBe('ClosedError')
    // What was asked of the server last was done.
    await server.restart()
    proxy.resume()
    await expectStats(onServer, { ready: 1, claimed: 0, enqueuedTotal: 1 })
  })

  it('D5 with a handler that never ends: nothing is asked of the server any more, and no connection stays', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startRedis())
    const proxy = await rig.use(startProxy(server.port))
    const queue = rig.queue(rig.backend(proxy.url), { leaseMs: 3_000 })
    let started = 0
    const stuck = pipe(
      queue.source(),
      mergeMap(() => {
        started += 1
        return new Promise(() => {})
      }, 2),
    )
    const running = run(stuck).catch(nameOf)
    await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
    await until('they are stuck', () => started === 2)
    const closeMs = await timed(async () =>
      expect(await queue.close({ graceMs: 1_000 })).toMatchObject({ released: 2 }),
    )
    expect(closeMs).toBeLessThan(1_700)
    expect(await running).toBe('ClosedError')
    await until('no connection stays', () => proxy.connections === 0, 1_000)
    const asked = proxy.count()
    await pause(1_500)
    expect(proxy.commands.slice(asked).map(({ args }) => args.map(String).join(' ').slice(0, 300))).toEqual([])
    await expectStats(rig.queue(rig.backend(server.url), {}, queue.name), { ready: 2, claimed: 0 })
  })

  it('D11 after pause and resume there is work again, and a resume while closing revives nothing', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startRedis())
    const relay = await rig.use(startRelay(server.port))
    const queue = rig.queue(rig.backend(urlOf(relay)))
    const other = rig.queue(rig.backend(server.url), {}, queue.name)
    const first = followed(queue)
    await queue.pause()
    await other.enqueue('a', { id: 'a' })
    relay.reset()
    await queue.resume()
    await until('it has come', () => first.seen.length === 1)
    await queue.pause()
    await other.enqueue('b', { id: 'b' })
    const resuming = queue.resume().then(() => 'resumed', nameOf)
    await queue.close({ graceMs: 0 })
    expect(['resumed', 'ClosedError']).toContain(await resuming)
    await other.resume()
    expect((await other.receive({ timeoutMs: 5_000 }))?.id).toBe('b')
    expect([first.seen, await first.ended]).toEqual([['a 1'], 'ClosedError'])
    await until('no connection stays', () => relay.subscribers === 0)
  })
})

describe('closing in an outage', () => {
  it('A12, D9 leaves no timer behind, also where the client is just waiting to connect again', async () => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startRedis())
    await server.kill()
    const timers = () => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length
    await pause(500)
    const before = timers()
    const queues = Array.from({ length: 100 }, () => rig.queue(rig.backend(server.url)))
    for (const queue of queues) queue.source().subscribe({ error: () => {} })
    const answers = queues.map((queue) => queue.enqueue('a').catch(nameOf))
    await pause(2_000)
    // At different instants of its pauses, of which the last are what counts.
    for (const queue of queues) await Promise.all([queue.close({ graceMs: 0 }), pause(15)])
    // A request that waits for its next try, 2 s at most, finds then that all is closed.
    await until('no timer is left', () => timers() <= before, 2_800)
    expect(await Promise.all(answers)).toEqual(queues.map(() => 'ClosedError'))
  })
})

describe('a process in an outage', () => {
  const started = () => new Child<Said>(CHILD, [server.url])
  let server: RedisServer
  const released = (said: Said): said is Extract<Said, object> => typeof said === 'object'

  it('A30, D1, A12 is not crashed by it, ends in order when told to by SIGTERM, and by itself', async () => {
    const rig = new Rig(onTestFinished)
    server = await rig.use(startRedis({ appendOnly: true }))
    const queue = rig.queue(rig.backend(server.url), {}, 'child')
    const [idle, working] = [started(), started()]
    await queue.enqueue('a', { id: 'a' })
    await Promise.race([idle.hear(), working.hear()])
    await until(
      'both listen',
      async () => {
        const channels = (await server.command('PUBSUB', 'NUMSUB', 'millrace:{child}:h')) as [string, number]
        return Number(channels[1]) === 2
      },
      10_000,
    )
    await server.kill()
    for (const child of [idle, working]) await child.hear((said): said is Said => said === 'reconnecting')
    const tookMs = await timed(async () => {
      for (const child of [idle, working]) child.process.kill('SIGTERM')
      await Promise.all([idle.end(), working.end()])
    })
    // Grace, the bound of a settlement, letting go; and a retry that finds that nobody wants it.
    expect(tookMs).toBeLessThan(500 + 5_000 + 1_000 + 2_000)
    const accounts = await Promise.all([idle.hear(released), working.hear(released)])
    expect(accounts.map(({ released }) => released)).toEqual([0, 0])
    expect(accounts.reduce((sum, { abandoned }) => sum + abandoned, 0)).toBeGreaterThanOrEqual(1)
    await server.restart()
    expect((await queue.receive({ timeoutMs: 8_000 }))?.attempt).toBe(2)
  })
})
