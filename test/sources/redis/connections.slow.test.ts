/** What waiting costs, and how a hint that is lost is made up for. */
import type { Delivery, Queue } from 'millrace'
import { describe, expect, it } from 'vitest'
import { expectStats } from '../../support/queues.js'
import { named, startProxy } from '../../support/servers/proxy.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { pause, until } from '../../support/wait.js'
import { isScript, Rig } from './rig.js'

const BLOCKING = named('blpop', 'brpop', 'blmove', 'brpoplpush', 'blmpop', 'bzpopmin', 'bzpopmax', 'bzmpop', 'xread')

describe.concurrent('waiting', () => {
  it('H16, A2, N85 of 200 sources on 20 queues costs less than a command a second, on two connections', async ({
    onTestFinished,
  }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startRedis())
    const proxy = await rig.use(startProxy(server.port))
    const backend = rig.backend(proxy.url)
    const queues = Array.from({ length: 20 }, (_, index) => rig.queue(backend, {}, `idle-${index}`))
    const seen: Delivery<string>[] = []
    for (const queue of queues) {
      for (let count = 0; count < 10; count += 1)
        queue.source().subscribe({ next: (delivery) => void seen.push(delivery), error: () => {} })
    }
    const channels = async () => (await server.command('PUBSUB', 'CHANNELS', 'millrace:{idle-*')) as string[]
    await until('all listen', async () => (await channels()).length === 20)
    const claims = () => proxy.count(isScript)
    await until('all wait', async () => {
      const before = claims()
      await pause(300)
      return claims() === before && before > 20
    })
    // Past two of the signs of life that the connection for hints is asked for.
    const before = claims()
    const commands = proxy.count()
    await pause(11_000)
    expect(claims() - before).toBeLessThan(11)
    expect(claims() - before).toBeGreaterThan(0)
    expect(proxy.count() - commands).toBeLessThan(11 + 3)
    expect(proxy.count(BLOCKING)).toBe(0)
    expect(proxy.connections).toBe(2)
    const subscribers = proxy.commands.filter(({ name }) => name === 'subscribe').map(({ connection }) => connection)
    expect(new Set(subscribers).size).toBe(1)
    const everMade = new Set(proxy.commands.map(({ connection }) => connection))
    expect(everMade.size).toBe(2)

    // One message for each queue reaches one of its sources, for one claim and no more.
    const quiet = claims()
    await Promise.all(queues.map((queue) => queue.enqueue('a')))
    await until('all have come', () => seen.length === 20)
    await pause(300)
    // Some for each message, since who finds as much as it asked for wakes the next; none for each of the ten who wait.
    expect(claims() - quiet).toBeLessThanOrEqual(20 * 5)
    await Promise.all(queues.map((queue) => queue.close({ graceMs: 0 })))
    await until('no connection stays', () => proxy.connections === 0, 1_000)
  })
})

/** Notes when each message comes, and acks it. */
function noting(queue: Queue<string>): Map<string, number> {
  const seen = new Map<string, number>()
  queue.source().subscribe({
    next: (delivery) => {
      seen.set(delivery.id, performance.now())
      void delivery.ack()
    },
    error: () => {},
  })
  return seen
}

describe.concurrent('a hint that is lost', () => {
  it('R10, N7 published while nobody was subscribed: it is read after the subscription', async ({ onTestFinished }) => {
    const rig = new Rig(onTestFinished)
    const server = await rig.use(startRedis())
    const proxy = await rig.use(startProxy(server.port))
    // Many queues share the poll, so that it comes seldom: each waits 20 times 2 s.
    const backend = rig.backend(proxy.url)
    const others = Array.from({ length: 19 }, () => rig.queue(backend))
    for (const queue of others) noting(queue)
    const queue = rig.queue(backend)
    const producer = rig.queue(rig.backend(server.url), {}, queue.name)
    const seen = noting(queue)
    await until('all listen', async () => {
      const [, count] = (await server.command('PUBSUB', 'NUMSUB', `millrace:{${queue.name}}:h`)) as [string, number]
      return Number(count) === 1
    })
    await Promise.all([queue, ...others].map((each) => each.stats()))
    const delays: number[] = []
    for (let round = 0; round < 10; round += 1) {
      // It is thrown out, and the message comes before it is back, or at the same time.
      const subscribed = proxy.count(named('subscribe'))
      const thrownOut = server.command('CLIENT', 'KILL', 'TYPE', 'pubsub')
      if (round % 2 === 0) await thrownOut
      const sentAt = performance.now()
      await producer.enqueue('a', { id: `a${round}` })
      await thrownOut
      await until('it has come', () => seen.has(`a${round}`), 6_000)
      delays.push((seen.get(`a${round}`) ?? 0) - sentAt)
      await until('it is subscribed again', () => proxy.count(named('subscribe')) > subscribed)
    }
    expect(Math.max(...delays)).toBeLessThan(1_500)
    await expectStats(producer, { ackedTotal: 10, ready: 0, claimed: 0 })
  })
})
