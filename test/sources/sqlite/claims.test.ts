/** Claims of one file through connections that know nothing of each other. */
import { describe, expect, it } from 'vitest'
import { backendOn, clientOn, connect, expectWhole, freshPath, queueOn } from './rig.js'

describe('a second object on a live queue', () => {
  it('S4 steals nothing that is running, and waits for what comes', async () => {
    const path = freshPath()
    const first = queueOn(backendOn(path))
    await first.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
    const held = await first.receive()
    const second = queueOn(backendOn(path))
    expect(await second.stats()).toMatchObject({ ready: 1, claimed: 1 })
    const theirs = await second.receive()
    expect(theirs?.payload).toBe('b')
    expect(await second.tryReceive()).toBeUndefined()
    expect(await held?.ack()).toBe('settled')
    expect(await theirs?.ack()).toBe('settled')
  })

  it('S4 opened by name only when the first has a lease of its own length', async () => {
    const path = freshPath()
    const first = queueOn(backendOn(path), { leaseMs: 60_000 })
    await first.enqueue('a')
    const held = await first.receive()
    const second = queueOn(backendOn(path), { leaseMs: 50 })
    expect(await second.receive({ timeoutMs: 150 })).toBeUndefined()
    await second.close()
    expect(await held?.ack()).toBe('settled')
  })

  it('S4 closing the last other one leaves what is held here held', async () => {
    const path = freshPath()
    const first = clientOn(path)
    await first.enqueue('a')
    const claim = await first.one()
    const second = clientOn(path)
    await second.stats()
    await second.backend.close()
    expect(await first.ack(claim)).toBe('acked')
    expectWhole(connect(path))
  })
})

describe('the token of a claim', () => {
  it('S7 is new after a requeue, and the old one counts for nothing, in any process', async () => {
    const path = freshPath()
    const one = clientOn(path)
    const two = clientOn(path)
    await one.enqueue('a')
    const first = await one.one()
    expect(await one.requeue(first)).toBe('ready')
    const second = await two.one()
    expect(second.id).toBe(first.id)
    expect(second.token).not.toBe(first.token)
    expect(second.fence).toBeGreaterThan(first.fence)
    for (const client of [one, two]) {
      expect(await client.ack(first)).toBe('stale')
      expect(await client.requeue(first)).toBe('stale')
      expect(await client.bury(first)).toBe('stale')
      expect(await client.settle({ ...first, kind: 'release', delivered: false })).toBe('stale')
      expect(await client.driver.renew([{ ...first, leaseMs: 1 }])).toMatchObject([{ state: 'stale' }])
    }
    expect(await two.ack(second)).toBe('acked')
  })

  it('S7 is new after each way back', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue('a')
    const tokens = new Set<string>()
    const again = async (give: (claim: Awaited<ReturnType<typeof client.one>>) => Promise<unknown>) => {
      const claim = await client.one()
      tokens.add(claim.token)
      await give(claim)
    }
    await again((claim) => client.requeue(claim))
    await again((claim) => client.settle({ ...claim, kind: 'release', delivered: false }))
    await again((claim) => client.settle({ ...claim, kind: 'release', delivered: true }))
    await again(async (claim) => {
      await client.bury(claim)
      await client.driver.requeueDead(['a'], client.token())
    })
    await again((claim) => client.ack(claim))
    expect(tokens.size).toBe(5)
  })

  it.each(['', '0', '-1', '1.0', ' 1', '1e0', '01', '0x1', '9999999999999999', 'NaN', 'a'])(
    'S7 that nobody was given settles nothing: %j',
    async (token) => {
      const path = freshPath()
      const client = clientOn(path)
      await client.enqueue('a')
      const claim = await client.one()
      expect(await client.ack({ ...claim, token })).toBe('stale')
      expect(await client.ack(claim)).toBe('acked')
    },
  )
})

describe('an ack', () => {
  it('S8 after a purge, or a second one while the outcome is kept, is stale', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue('a', 'b')
    const [a, b] = await client.claim(2)
    if (a === undefined || b === undefined) throw new Error('two were ready')
    expect(await client.driver.purge(['claimed'], 1, client.token())).toBe(1)
    expect(await client.ack(a)).toBe('stale')
    expect(await client.ack(b)).toBe('acked')
    expect(await client.ack(b)).toBe('stale')
    expect(await clientOn(path).ack(b)).toBe('stale')
    expect(await client.driver.outcome('b', false)).toEqual({ state: 'done' })
    expect(await client.stats()).toMatchObject({ ackedTotal: 1, purgedTotal: 1, claimed: 0 })
    expectWhole(connect(path))
  })

  it('S8 of a purged id does not touch a new message of that id', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue('a')
    const old = await client.one()
    await client.driver.purge(['claimed'], 1, client.token())
    expect(await client.enqueue('a')).toEqual(['enqueued'])
    const fresh = await client.one()
    expect(await client.ack(old)).toBe('stale')
    expect(await client.ack(fresh)).toBe('acked')
  })
})
