import { expect } from 'vitest'
import type { RequestToken } from '../../../src/driver.js'
import type { Client } from './harness.js'

const HOUR_MS = 3_600_000

/** Each verb once, on a queue where it has something to do. */
export const VERBS: Readonly<Record<string, (client: Client, token: RequestToken) => PromiseLike<unknown>>> = {
  settings: ({ driver }) => driver.settings({ maxDeliveries: 3 }),
  configure: ({ driver }) => driver.configure({ ageing: { stepMs: HOUR_MS, cap: 65_535 } }),
  enqueue: (client) => client.enqueue({ id: 'new' }, { id: 'later', delayMs: HOUR_MS, ttlMs: 2 * HOUR_MS }),
  claim: ({ driver }, token) => driver.claim({ token, max: 1, leaseMs: 1_000, take: false, consumer: 'c' }),
  settle: ({ driver }, token) => driver.settle([{ kind: 'ack', id: 'new', token: '1' }], token),
  renew: ({ driver }) => driver.renew([{ id: 'new', token: '1', leaseMs: 1_000 }]),
  sweep: ({ driver }) => driver.sweep(10),
  stats: ({ driver }) => driver.stats(),
  list: ({ driver }) => driver.list('ready', { limit: 1 }),
  deadLetters: ({ driver }) => driver.deadLetters({ limit: 1 }),
  requeueDead: ({ driver }, token) => driver.requeueDead(['d'], token),
  purgeDead: ({ driver }, token) => driver.purgeDead(['d'], token),
  purge: ({ driver }, token) => driver.purge(['ready', 'delayed', 'claimed', 'dead'], 10, token),
  pause: ({ driver }) => driver.pause(),
  resume: ({ driver }) => driver.resume(),
  cancel: ({ driver }, token) => driver.cancel('new', token),
  outcome: ({ driver }) => driver.outcome('new', true),
}

/** A way through all states and verbs, each answer checked. Messages are carried over to another queue. */
export async function tour(client: Client, other: Client): Promise<void> {
  const { driver } = client
  await driver.settings({ maxDeliveries: 3, ageing: { stepMs: HOUR_MS, cap: 1 } })
  await driver.configure({ limits: { maxLength: 9, maxBytes: null, maxPayloadBytes: 100, whenFull: 'dropOldest' } })
  const ids = Array.from({ length: 12 }, (_, index) => `m${index}`)
  await client.enqueue({ id: 'later', delayMs: HOUR_MS, ttlMs: HOUR_MS }, { id: 'soon', delayMs: 1 })
  for (const id of ids) await client.enqueue({ id, ttlMs: HOUR_MS, headers: { h: 'x' } })
  await expect.poll(async () => (await client.statsAfterSweep()).delayed).toBe(1)
  const claims = await client.claim(8)
  expect(claims).toHaveLength(8)
  const [a, b, c, d, e, f, g, h] = claims.map(({ id, token }) => ({ id, token })) as [
    ...{ id: string; token: string }[],
  ] & { length: 8 }
  if (!(a && b && c && d && e && f && g && h)) throw new Error('eight were claimed')
  await driver.renew([{ ...a, leaseMs: 60_000, progress: Buffer.from('half') }])
  const carry = [{ queue: other.name, message: { id: 'carried', bytes: Buffer.from('x'), priority: 0, delayMs: 0 } }]
  expect(
    await client.settle(
      { ...a, kind: 'ack', result: Buffer.from('r') },
      { ...b, kind: 'ack', carry },
      { ...c, kind: 'release', delivered: false },
      { ...d, kind: 'requeue', delayMs: 0, countAttempt: true, reason: 'no' },
      { ...e, kind: 'requeue', delayMs: HOUR_MS, countAttempt: false },
      { ...f, kind: 'dead-letter', reason: 'bad' },
      { ...g, kind: 'dead-letter', reason: 'bad' },
    ),
  ).toEqual(['acked', 'forwarded', 'ready', 'ready', 'delayed', 'dead', 'dead'])
  expect(await driver.cancel(h.id, client.token())).toBe('cancelling')
  expect(await client.settle({ ...h, kind: 'release', delivered: true })).toEqual(['cancelled'])
  for (const state of ['ready', 'delayed', 'claimed'] as const) {
    const page = await driver.list(state, { limit: 1 })
    if (page.next !== undefined) await driver.list(state, { limit: 1, after: page.next })
  }
  const dead = await driver.deadLetters({ limit: 1 })
  await driver.deadLetters({ limit: 1, after: dead.next as string })
  expect(await driver.requeueDead([f.id], client.token())).toEqual([true])
  expect(await driver.purgeDead([g.id], client.token())).toEqual([true])
  expect(await driver.outcome(a.id, false)).toMatchObject({ state: 'done' })
  expect(await driver.outcome(f.id, true)).toEqual({ state: 'pending' })
  await driver.pause()
  expect(await client.claim()).toEqual([])
  await driver.resume()
  expect(await driver.cancel('later', client.token())).toBe('cancelled')
  await driver.configure({ ageing: null })
  expect(await other.drain()).toEqual(['carried'])
  await client.claim(1, { take: true })
  expect(await client.drain()).not.toEqual([])
}
