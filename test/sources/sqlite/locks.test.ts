/** A file whose lock somebody else holds: waited for, and then an error; never an empty queue. */
import { BackendUnavailableError } from 'millrace'
import { describe, expect, it } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { until } from '../../support/wait.js'
import { backendOn, clientOn, connect, expectWhole, freshPath, lock, queueOn } from './rig.js'

describe('locked for longer than the bound', () => {
  it('S10 every verb rejects as unavailable, nothing is lost, and all is well when it is gone', async () => {
    const path = freshPath()
    const client = clientOn(path, { busyTimeoutMs: 40 })
    await client.enqueue('a', 'b', 'c')
    const held = await client.one()
    const holder = lock(path)
    const { driver } = client
    const request = { max: 1, leaseMs: 1_000, take: false, consumer: 'c' }
    const answers = await Promise.allSettled([
      client.enqueue('d'),
      driver.claim({ ...request, token: client.token() }),
      client.ack(held),
      driver.renew([{ id: held.id, token: held.token, leaseMs: 1_000 }]),
      driver.stats(),
      driver.list('ready', { limit: 5 }),
      driver.deadLetters({ limit: 5 }),
      driver.outcome('a', false),
      driver.cancel('b', client.token()),
      driver.purge(['ready'], 5, client.token()),
      driver.sweep(5),
      driver.settings({}),
      driver.pause(),
      driver.requeueDead(['a'], client.token()),
    ])
    for (const answer of answers) {
      expect(answer.status).toBe('rejected')
      expect((answer as PromiseRejectedResult).reason).toBeInstanceOf(BackendUnavailableError)
    }
    holder.release()
    expect(await client.stats()).toMatchObject({ ready: 2, claimed: 1, paused: false, enqueuedTotal: 3 })
    expect(await client.ack(held)).toBe('acked')
    expect((await client.claim(9)).map(({ id }) => id)).toEqual(['b', 'c'])
    expectWhole(connect(path))
  })

  it('S10 what would only read rejects too, alone and with nothing to wait for', async () => {
    const path = freshPath()
    const client = clientOn(path, { busyTimeoutMs: 10 })
    await client.stats()
    const holder = lock(path)
    const { driver } = client
    const reads: (() => PromiseLike<unknown>)[] = [
      () => driver.stats(),
      () => client.claim(),
      () => driver.list('claimed', { limit: 5 }),
      () => driver.deadLetters({ limit: 5 }),
      () => driver.outcome('a', false),
      () => driver.sweep(5),
    ]
    for (const read of reads) await expect(read()).rejects.toBeInstanceOf(BackendUnavailableError)
    holder.release()
    expect(await client.claim()).toEqual([])
  })

  it('S10 a request that was given up can be asked again under its token, and is done once', async () => {
    const path = freshPath()
    const client = clientOn(path, { busyTimeoutMs: 20 })
    await client.enqueue('a')
    const token = client.token()
    const claim = async () => client.driver.claim({ token, max: 1, leaseMs: 1_000, take: false, consumer: 'c' })
    const holder = lock(path)
    await expect(claim()).rejects.toThrow('is locked by another connection')
    await expect(claim()).rejects.toThrow('is locked by another connection')
    holder.release()
    const { claims } = await claim()
    expect(claims.map(({ id, deliveryCount }) => [id, deliveryCount])).toEqual([['a', 1]])
    expect(await claim()).toEqual(expect.objectContaining({ claims }))
    expect(await client.stats()).toMatchObject({ ready: 0, claimed: 1 })
  })

  it('S10 a wait with a bound rejects, and does not answer that the queue is empty', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path, { busyTimeoutMs: 30 }))
    await queue.enqueue('a')
    const holder = lock(path)
    await expect(queue.receive({ timeoutMs: 100 })).rejects.toBeInstanceOf(BackendUnavailableError)
    await expect(queue.take({ timeoutMs: 100 })).rejects.toBeInstanceOf(BackendUnavailableError)
    holder.release()
    expect((await queue.tryReceive())?.attempt).toBe(1)
  })

  it('S10 a wait ends with its own bound or signal, however long the lock may be waited for', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path))
    await queue.enqueue('a')
    const holder = lock(path)
    const startedAt = performance.now()
    await expect(queue.receive({ timeoutMs: 50 })).rejects.toBeInstanceOf(BackendUnavailableError)
    const abort = new AbortController()
    const aborted = queue.receive({ signal: abort.signal })
    abort.abort()
    await expect(aborted).rejects.toThrow(/cancelled/)
    const source = queue.source()
    source.subscribe()
    expect(await source.stop()).toEqual({ released: 0, settledDuringGrace: 0, abandoned: 0 })
    // The lock would have been waited for as long as 5 s each time.
    expect(performance.now() - startedAt).toBeLessThan(2_500)
    holder.release()
    const delivery = await queue.tryReceive()
    expect([delivery?.attempt, delivery?.deliveryCount]).toEqual([1, 1])
  })

  it('S10 a stream lives on, says that it is down and up again, and delivers', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path, { busyTimeoutMs: 30 }))
    await queue.enqueue('a')
    const holder = lock(path)
    const source = queue.source()
    const events = eventsOf(source)
    const payloads: string[] = []
    source.subscribe((delivery) => {
      payloads.push(delivery.payload)
      void delivery.ack()
    })
    await until('the stream is down', () => events.some(({ type }) => type === 'reconnecting'))
    holder.release()
    await until('the message came', () => payloads.length > 0)
    expect(payloads).toEqual(['a'])
    expect(events.map(({ type }) => type)).toContain('reconnected')
    expect(await source.stop()).toMatchObject({ abandoned: 0 })
  })

  it('S10, D1 closing while it is locked settles', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path, { busyTimeoutMs: 30 }))
    await queue.enqueue('a')
    const source = queue.source()
    const iterator = source[Symbol.asyncIterator]()
    await iterator.next()
    const holder = lock(path)
    const began = performance.now()
    const closing = queue.close({ graceMs: 50 })
    await until('it is closing', () => performance.now() - began > 100)
    holder.release()
    expect(await closing).toMatchObject({ abandoned: 0 })
    expect(await queueOn(backendOn(path)).stats()).toMatchObject({ ready: 1, claimed: 0 })
  })

  it('S10 a file that is locked at its first use is made when it is not', async () => {
    const path = freshPath()
    const other = connect(path)
    other.exec('BEGIN EXCLUSIVE')
    const client = clientOn(path, { busyTimeoutMs: 30 })
    await expect(client.enqueue('a')).rejects.toBeInstanceOf(BackendUnavailableError)
    await expect(client.stats()).rejects.toBeInstanceOf(BackendUnavailableError)
    other.exec('COMMIT')
    await client.enqueue('b')
    expect(await client.stats()).toMatchObject({ ready: 1, enqueuedTotal: 1 })
  })
})

describe('locked for a moment', () => {
  it('S1 it is waited for, and the loop turns meanwhile', async () => {
    const path = freshPath()
    const client = clientOn(path)
    await client.enqueue('a')
    const holder = lock(path)
    let turns = 0
    const ticking = setInterval(() => {
      turns += 1
      if (turns === 10) holder.release()
    }, 10)
    const claims = await client.claim()
    clearInterval(ticking)
    expect(claims.map(({ id }) => id)).toEqual(['a'])
    expect(turns).toBeGreaterThanOrEqual(10)
  })

  it('B18 a renewal waits for the lock and comes in time', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path), { leaseMs: 900 })
    await queue.enqueue('a')
    const delivery = await queue.receive()
    const leased = delivery?.leaseExpiresAt ?? 0
    const holder = lock(path)
    // The first renewal is due after a third of the lease.
    await until('the renewal is overdue', () => leased - Date.now() < 450)
    holder.release()
    await until('it is renewed', () => (delivery?.leaseExpiresAt ?? 0) > leased)
    expect(delivery?.signal.aborted).toBe(false)
    expect(await delivery?.ack()).toBe('settled')
  })

  it('S2 what reads first and then writes meets no lock that it cannot wait for', async () => {
    const path = freshPath()
    const one = clientOn(path)
    const two = clientOn(path)
    await one.enqueue(...Array.from({ length: 60 }, (_, index) => `${index}`))
    const reader = connect(path)
    reader.exec('BEGIN')
    reader.prepare('SELECT count(*) FROM millrace_messages').get()
    const granted = await Promise.all(Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? one : two).claim(3)))
    const ids = granted.flat().map(({ id }) => Number(id))
    expect(ids.sort((a, b) => a - b)).toEqual(Array.from({ length: 60 }, (_, index) => index))
    expect(new Set(granted.flat().map(({ fence }) => fence)).size).toBe(60)
    reader.exec('COMMIT')
    expectWhole(reader)
  })
})
