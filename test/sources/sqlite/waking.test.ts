/** Who waits is woken: at once by what its own process does, soon by what another backend commits. */
import type { Backend } from 'millrace'
import { describe, expect, it } from 'vitest'
import type { Hint } from '../../../src/driver.js'
import { turn, until } from '../../support/wait.js'
import { backendOn, Client, clientOn, freshPath, queueOn } from './rig.js'

/** What a client is told from now on. */
function hintsOf(client: Client): Hint[] {
  const hints: Hint[] = []
  client.driver.arrivals().subscribe((hint) => hints.push(hint))
  return hints
}

/** Listens, and has been told of all that was before. */
async function listening(client: Client): Promise<Hint[]> {
  const hints = hintsOf(client)
  await client.stats()
  await until('the first look', () => hints.length > 0)
  hints.length = 0
  return hints
}

async function pair(): Promise<{ backend: Backend; here: Client; beside: Client; elsewhere: Client }> {
  const path = freshPath()
  const backend = backendOn(path)
  const here = new Client(backend)
  await here.enqueue('first')
  await here.ack(await here.one())
  return { backend, here, beside: new Client(backend), elsewhere: clientOn(path) }
}

describe('in one process', () => {
  it('S11 a waiter has the message when the enqueue is answered, or in the next turn, without a look at the file', async () => {
    const { here, beside } = await pair()
    const hints = await listening(here)
    await beside.enqueue('a')
    expect(hints).toEqual([{ kind: 'ready' }])
  })

  it('S11 a wait ends within a few turns of the loop', async () => {
    const { backend } = await pair()
    const waiter = queueOn(backend)
    await waiter.stats()
    const received = waiter.receive()
    await waiter.stats()
    await queueOn(backend).enqueue('a')
    let turns = 0
    let done = false
    void received.then(() => {
      done = true
    })
    while (!done && turns < 50) {
      await turn()
      turns += 1
    }
    expect(turns).toBeLessThan(10)
    expect((await received)?.payload).toBe('a')
  })
})

describe('through another backend', () => {
  const changes: [string, (client: Client) => Promise<unknown>][] = [
    ['an enqueue', (client) => client.enqueue('a')],
    ['a delayed enqueue', (client) => client.enqueue({ id: 'a', delayMs: 60_000 })],
    ['one that will expire', (client) => client.enqueue({ id: 'a', ttlMs: 60_000 })],
    ['a resume', async (client) => client.driver.resume()],
    ['a change of the settings', async (client) => client.driver.configure({ maxDeliveries: 9 })],
  ]
  it.each(changes)('S11 %s is told, once', async (_, change) => {
    const { here, elsewhere } = await pair()
    const hints = await listening(here)
    await change(elsewhere)
    await until('it is told', () => hints.length > 0)
    expect(hints).toEqual([{ kind: 'ready' }])
  })

  const returns: [string, (client: Client) => Promise<unknown>][] = [
    ['a requeue', async (client) => client.requeue(await client.one())],
    ['a requeue with a delay', async (client) => client.requeue(await client.one(), 1_000)],
    ['a release', async (client) => client.settle({ ...(await client.one()), kind: 'release', delivered: false })],
    [
      'a dead letter that comes back',
      async (client) => {
        await client.bury(await client.one())
        await client.driver.requeueDead(['a'], client.token())
      },
    ],
    ['a shorter lease', async (client) => client.driver.renew([{ ...(await client.one()), leaseMs: 500 }])],
  ]
  it.each(returns)('S11 %s is told', async (_, change) => {
    const { here, elsewhere } = await pair()
    await elsewhere.enqueue('a')
    const hints = await listening(here)
    await change(elsewhere)
    await until('it is told', () => hints.some(({ kind }) => kind === 'ready'))
  })

  it('S11 what wakes nobody is not told: claims and acks of others', async () => {
    const { here, elsewhere } = await pair()
    await elsewhere.enqueue('a', 'b')
    const hints = await listening(here)
    await elsewhere.ack(await elsewhere.one())
    await elsewhere.one()
    await elsewhere.enqueue('mark')
    await until('the mark is told', () => hints.length > 0)
    expect(hints).toEqual([{ kind: 'ready' }])
  })

  it('S11 a cancel and an outcome are told with their ids', async () => {
    const { here, elsewhere } = await pair()
    await here.enqueue('a', 'b')
    const [a, b] = await here.claim(2)
    const hints = await listening(here)
    await elsewhere.driver.cancel('a', elsewhere.token())
    await until('the cancel is told', () => hints.some(({ kind }) => kind === 'cancel'))
    expect(hints).toContainEqual({ kind: 'cancel', id: 'a' })
    expect(await here.driver.outcome('b', true)).toEqual({ state: 'pending' })
    if (a && b) await elsewhere.ack(b)
    await until('the outcome is told', () => hints.some(({ kind }) => kind === 'outcome'))
    expect(hints).toContainEqual({ kind: 'outcome', id: 'b' })
  })

  it('S11 many queues of one file are told apart', async () => {
    const path = freshPath()
    const backend = backendOn(path)
    const elsewhere = backendOn(path)
    const mine = ['p', 'q', 'r'].map((name) => new Client(backend, name))
    for (const client of mine) await client.enqueue('first')
    const hints = await Promise.all(mine.map(listening))
    await new Client(elsewhere, 'q').enqueue('a')
    await until('q is told', () => (hints[1]?.length ?? 0) > 0)
    expect(hints).toEqual([[], [{ kind: 'ready' }], []])
  })

  it('S11 a wait is over when the lease of another consumer lapses, who came after it and is gone', async () => {
    const { backend, elsewhere } = await pair()
    const waiter = queueOn(backend)
    const received = waiter.receive({ timeoutMs: 4_000 })
    await waiter.stats()
    const claiming = [elsewhere.enqueue({ id: 'a', bytes: Buffer.from('"a"') }), elsewhere.claim(1, { leaseMs: 120 })]
    await Promise.all(claiming)
    const delivery = await received
    expect(delivery?.id).toBe('a')
    expect(delivery?.attempt).toBe(2)
  })

  it('S11 is told over a new connection too, which counts the changes of others anew', async () => {
    const { backend, here, beside, elsewhere } = await pair()
    const first = await listening(here)
    await elsewhere.enqueue('a')
    await until('the first is told', () => first.length > 0)
    // The last to let go closes the connection.
    await Promise.all([here.driver.close(), beside.driver.close()])
    const again = new Client(backend)
    const hints = hintsOf(again)
    await again.stats()
    hints.length = 0
    await elsewhere.enqueue('b')
    await until('the second is told', () => hints.some(({ kind }) => kind === 'ready'))
  })
})
