import { BackendError } from 'millrace'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { eventsOf } from '../../support/events.js'
import type { RedisServer } from '../../support/servers/redis-server.js'
import { turn } from '../../support/wait.js'
import { allKeys, backendOn, Client, failureOf, freshServer, inspect, queueOn } from './harness.js'

/** Leaves the server no memory, as it uses some already. */
async function fillUp(server: RedisServer): Promise<void> {
  await server.command('CONFIG', 'SET', 'maxmemory', 1)
}

async function makeRoom(server: RedisServer): Promise<void> {
  await server.command('CONFIG', 'SET', 'maxmemory', 0)
}

function warnings(): Error[] {
  const seen: Error[] = []
  const keep = (warning: Error) => void seen.push(warning)
  process.on('warning', keep)
  onTestFinished(() => void process.off('warning', keep))
  return seen
}

describe('a server whose memory is full', () => {
  it('R8 G10 refuses an enqueue with a typed error, and stores nothing of it', async () => {
    const server = await freshServer()
    const redis = inspect(server)
    const queue = queueOn(backendOn(server.url), {}, 'q')
    await queue.enqueue('a')
    const shape = async () => [
      await allKeys(redis),
      await redis.hkeys('millrace:{q}:m'),
      await redis.hlen('millrace:{q}:p'),
    ]
    const before = await shape()
    await fillUp(server)
    for (const act of [
      () => queue.enqueue('b'),
      () => queue.enqueueAll([{ payload: 'c' }, { payload: 'd', delayMs: 9_000 }]),
    ]) {
      const error = await failureOf(act)
      expect(error).toBeInstanceOf(BackendError)
      expect(error).toMatchObject({ code: 'ERR_MILLRACE_BACKEND' })
      expect(error.message).toContain('OOM')
    }
    expect(await shape()).toEqual(before)
    expect(await queue.stats()).toMatchObject({ enqueuedTotal: 1, ready: 1, delayed: 0 })
    await makeRoom(server)
    expect((await queue.enqueue('b')).status).toBe('enqueued')
  })

  it('R8 G10 still grants, renews, settles, sweeps, lists and tells', async () => {
    const server = await freshServer()
    const queue = new Client(backendOn(server.url), 'q')
    await queue.enqueue('a', 'b', 'c', 'd', 'e', { id: 'soon', delayMs: 1 })
    const [early] = await queue.claim(1)
    if (early === undefined) throw new Error('one was ready')
    await fillUp(server)
    const [b, c, d] = await queue.claim(3)
    if (!(b && c && d)) throw new Error('three were ready')
    const [renewed] = await queue.driver.renew([
      { id: b.id, token: b.token, leaseMs: 60_000, progress: Buffer.from('p') },
    ])
    expect(renewed?.state).toBe('renewed')
    expect(await queue.ack(early, b)).toEqual(['acked', 'acked'])
    expect(await queue.bury(c)).toEqual(['dead'])
    const again = { id: d.id, token: d.token, kind: 'requeue', delayMs: 0, countAttempt: true, reason: 'r' } as const
    expect(await queue.settle(again)).toEqual(['ready'])
    await expect.poll(async () => (await queue.statsAfterSweep()).delayed).toBe(0)
    expect((await queue.driver.list('ready', { limit: 1 })).next).toBeDefined()
    expect(await queue.driver.outcome('a', true)).toEqual({ state: 'done' })
    expect(await queue.driver.requeueDead(['c'], queue.token())).toEqual([true])
    await queue.driver.pause()
    await queue.driver.resume()
    expect(await queue.driver.configure({ maxDeliveries: 3 })).toMatchObject({ maxDeliveries: 3 })
    expect((await queue.drain()).toSorted()).toEqual(['c', 'd', 'e', 'soon'])
  })

  it('R8 G10 lets a source live, which delivers what comes when there is room again', async () => {
    const server = await freshServer()
    const queue = queueOn(backendOn(server.url), { leaseMs: 300 }, 'q')
    for (const payload of ['a', 'b', 'c']) await queue.enqueue(payload)
    const payloads: string[] = []
    const errors: unknown[] = []
    const source = queue.source()
    const events = eventsOf(source)
    const subscription = source.subscribe({
      next: (delivery) => {
        payloads.push(delivery.payload)
        setTimeout(() => void delivery.ack(), 50)
      },
      error: (error) => void errors.push(error),
    })
    onTestFinished(() => subscription.unsubscribe())
    await expect.poll(() => payloads.length).toBe(1)
    await fillUp(server)
    await expect.poll(async () => (await queue.stats()).ackedTotal).toBe(3)
    expect(await failureOf(() => queue.enqueue('d'))).toBeInstanceOf(BackendError)
    await makeRoom(server)
    await queue.enqueue('e')
    await expect.poll(() => payloads).toEqual(['a', 'b', 'c', 'e'])
    expect(errors).toEqual([])
    expect(events.filter(({ type }) => type === 'error' || type === 'lease-lost')).toEqual([])
  })

  it('R8 refuses a forward as it refuses an enqueue, and the claim stays live', async () => {
    const server = await freshServer()
    const backend = backendOn(server.url)
    const [from, to] = [queueOn(backend, {}, 'from'), queueOn(backend, {}, 'to')]
    await from.enqueue('a')
    const delivery = await from.receive({ timeoutMs: 2_000 })
    await fillUp(server)
    const told = await delivery?.forward(to, 'b').catch((error: Error) => error)
    await makeRoom(server)
    const [source, target] = [await from.stats(), await to.stats()]
    // Carrying over either happens or does not.
    expect(target.enqueuedTotal).toBe(source.forwardedTotal)
    if (source.forwardedTotal === 0) {
      expect(told).toBeInstanceOf(BackendError)
      expect(await delivery?.ack()).toBe('settled')
    } else expect(told).toBe('settled')
  })
})

describe('a server that may throw keys away', () => {
  const args = ['--maxmemory', '100mb', '--maxmemory-policy']

  it.each(['allkeys-lru', 'volatile-ttl'])('G10 is warned about once at the start: %s', async (policy) => {
    const server = await freshServer({ args: [...args, policy] })
    const seen = warnings()
    const backend = backendOn(server.url)
    for (const name of ['a', 'b']) await queueOn(backend, {}, name).enqueue('x')
    await turn()
    const ours = seen.filter((each) => (each as Error & { code?: string }).code === 'MILLRACE_REDIS_EVICTION')
    expect(ours).toHaveLength(1)
    expect(ours[0]?.message).toContain(policy)
  })

  it.each([
    ['it has no bound', ['--maxmemory', '0', '--maxmemory-policy', 'allkeys-lru']],
    ['it refuses instead', [...args, 'noeviction']],
  ])('is not warned about where %s', async (_, given) => {
    const server = await freshServer({ args: given })
    const seen = warnings()
    await queueOn(backendOn(server.url)).enqueue('x')
    await turn()
    expect(seen).toEqual([])
  })

  it('is not found out about, and nothing else breaks, where INFO and CONFIG are denied', async () => {
    const server = await freshServer({ args: [...args, 'allkeys-lru'] })
    await server.command('ACL', 'SETUSER', 'u', 'on', '>p', '~*', '&*', '+@all', '-info', '-config')
    const seen = warnings()
    const said = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const queue = queueOn(backendOn(`redis://u:p@127.0.0.1:${server.port}`))
    await queue.enqueue('x')
    expect((await queue.receive({ timeoutMs: 2_000 }))?.payload).toBe('x')
    expect(seen).toEqual([])
    // The client says it by itself; at most once for each of our two connections.
    expect(said.mock.calls.length).toBeLessThanOrEqual(2)
  })
})
