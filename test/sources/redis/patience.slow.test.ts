/** What looks like a silent network, and is none. */
import { connect, createServer, type Socket } from 'node:net'
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { reservePort } from '../../support/servers/free-ports.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { until } from '../../support/wait.js'
import { backendOn, Client, freshServer, queueOn } from './harness.js'

afterEach(() => void vi.restoreAllMocks())

/** Passes on what is sent to a port at so many bytes a second. */
async function slowLine(port: number, bytesPerSecond: number): Promise<string> {
  const reserved = await reservePort()
  const sockets = new Set<Socket>()
  const listener = createServer((client) => {
    const upstream = connect(port, '127.0.0.1')
    for (const socket of [client, upstream]) sockets.add(socket.on('error', () => socket.destroy()))
    upstream.pipe(client)
    client.on('data', (chunk) => {
      upstream.write(chunk)
      client.pause()
      setTimeout(() => client.resume(), (chunk.byteLength / bytesPerSecond) * 1_000)
    })
    client.on('close', () => upstream.destroy())
  })
  await new Promise<void>((resolve) => listener.listen(reserved.port, '127.0.0.1', resolve))
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy()
    listener.close()
    await reserved.release()
  })
  return `redis://127.0.0.1:${reserved.port}`
}

describe('a connection', () => {
  it('B22 over which a large batch takes longer than its patience is not cut', async () => {
    const server = await freshServer()
    const queue = new Client(backendOn(await slowLine(server.port, 4_000_000)))
    await queue.driver.configure({
      limits: { maxLength: null, maxBytes: null, maxPayloadBytes: 2_000_000, whenFull: 'reject' },
    })
    const batch = Array.from({ length: 16 }, (_, index) => ({ id: `m${index}`, bytes: Buffer.alloc(1_000_000) }))
    expect(new Set(await queue.enqueue(...batch))).toEqual(new Set(['enqueued']))
  })

  it('B2 is not cut because this process was busy for longer than its patience', async () => {
    const server = await freshServer()
    const queue = new Client(backendOn(server.url))
    await queue.enqueue('a')
    const asked = queue.driver.stats()
    await Promise.resolve()
    const endsAt = performance.now() + 2_600
    while (performance.now() < endsAt);
    expect(await asked).toMatchObject({ ready: 1 })
  })
})

describe('an outage', () => {
  it('A8 that is longer than answers are kept does not end a source', async () => {
    const server = await startRedis({ appendOnly: true })
    onTestFinished(() => server.stop())
    const queue = queueOn(backendOn(server.url), {}, 'q')
    const source = queue.source()
    const events = eventsOf(source)
    const seen: string[] = []
    const errors: unknown[] = []
    const subscription = source.subscribe({
      next: (delivery) => void seen.push(delivery.payload),
      error: (error) => void errors.push(error),
    })
    onTestFinished(() => subscription.unsubscribe())
    await queue.enqueue('first')
    await until('it is delivered', () => seen.length === 1)
    await server.kill()
    await until('the outage is told', () => events.some(({ type }) => type === 'reconnecting'))
    const real = Date.now
    vi.spyOn(Date, 'now').mockImplementation(() => real() + 51 * 60_000)
    const iterator = queue.source()[Symbol.asyncIterator]()
    const waiting = iterator.next()
    await server.restart()
    await queueOn(backendOn(server.url), {}, 'q').enqueue('second')
    expect((await waiting).value?.payload).toBe('second')
    expect(errors).toEqual([])
    await iterator.return?.()
  })
})
