/** A server that asks who it is, and forgets it. */
import { inspect } from 'node:util'
import { MillraceError } from 'millrace'
import { describe, expect, it } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { expectStats } from '../../support/queues.js'
import { type Finished, timed } from '../../support/rig.js'
import { ROOT, startEtcd } from '../../support/servers/etcd-server.js'
import { pause, until } from '../../support/wait.js'
import { Rig } from './rig.js'

const auth = { username: ROOT.name, password: ROOT.password }

async function ground(finished: Finished, tokenTtlS: number) {
  const rig = new Rig(finished)
  const server = await rig.use(startEtcd({ auth: { tokenTtlS } }))
  return { rig, server }
}

describe.concurrent('a token that ends two seconds after its last use', () => {
  it('E20, C13 is renewed: who has waited for five gets what comes, and calls go on', async ({ onTestFinished }) => {
    const { rig, server } = await ground(onTestFinished, 2)
    const queue = rig.queue(rig.backend(server.url, { auth }))
    const producer = rig.queue(rig.backend(server.url, { auth }), {}, queue.name)
    const source = queue.source()
    const events = eventsOf(source)
    const seen: string[] = []
    source.subscribe((delivery) => {
      seen.push(delivery.id)
      void delivery.ack()
    })
    await producer.enqueue('a', { id: 'a' })
    await until('it has come', () => seen.length === 1)
    await pause(5_000)
    const tookMs = await timed(async () => {
      await producer.enqueue('b', { id: 'b' })
      await until('it has come', () => seen.length === 2)
    })
    expect(tookMs).toBeLessThan(2_500)
    await until('both are acked', async () => (await producer.stats()).ackedTotal === 2)
    expect(seen).toEqual(['a', 'b'])
    expect(events.filter(({ type }) => type === 'error')).toEqual([])
    await source.stop()
    await expectStats(producer, { ackedTotal: 2, ready: 0, claimed: 0 })
  })

  it('E20, N42 a handler that runs for five seconds keeps its claim', async ({ onTestFinished }) => {
    const { rig, server } = await ground(onTestFinished, 2)
    const queue = rig.queue(rig.backend(server.url, { auth }), { leaseMs: 3_000 })
    const other = rig.queue(rig.backend(server.url, { auth }), {}, queue.name)
    await queue.enqueue('a', { id: 'a' })
    const delivery = await queue.receive()
    const waiting = other.receive({ timeoutMs: 5_000 })
    await pause(5_000)
    expect([delivery?.signal.aborted, await delivery?.ack()]).toEqual([false, 'settled'])
    expect(await waiting).toBe(undefined)
  })
})

describe('a token that has not ended', () => {
  it('C13 is of no use after a restart of the server, and another is asked for', async ({ onTestFinished }) => {
    const { rig, server } = await ground(onTestFinished, 60)
    const queue = rig.queue(rig.backend(server.url, { auth }))
    await queue.enqueue('a', { id: 'a' })
    const waiting = queue.source()
    const seen: string[] = []
    waiting.subscribe({ next: ({ id }) => void seen.push(id), error: () => {} })
    await until('it has come', () => seen.length === 1)
    await server.restart()
    expect(await queue.enqueue('b', { id: 'b' })).toEqual({ id: 'b', status: 'enqueued' })
    const other = rig.queue(rig.backend(server.url, { auth }), {}, queue.name)
    expect(await other.receive({ timeoutMs: 5_000 })).toMatchObject({ id: 'b' })
    await queue.close({ graceMs: 0 })
  })
})

describe.concurrent('a password that is wrong, or missing,', () => {
  it.for([
    ['wrong', { username: 'root', password: 'an old one' }],
    ['missing', undefined],
  ] as const)('is told soon, by a typed error that does not show it: %s', async ([, wrong], { onTestFinished }) => {
    const { rig, server } = await ground(onTestFinished, 60)
    const queue = rig.queue(rig.backend(server.url, wrong === undefined ? {} : { auth: wrong }))
    const errors: unknown[] = []
    const tookMs = await timed(async () => {
      errors.push(await queue.enqueue('a').catch((error: unknown) => error))
      errors.push(await queue.receive({ timeoutMs: 500 }).catch((error: unknown) => error))
    })
    expect(tookMs).toBeLessThan(8_000)
    for (const error of errors) {
      expect(error).toBeInstanceOf(MillraceError)
      expect(inspect(error, { depth: 9, showHidden: true })).not.toContain('an old one')
    }
    expect(String(errors[0])).toMatch(/authentication failed|user name is empty|permission/)
  })
})
