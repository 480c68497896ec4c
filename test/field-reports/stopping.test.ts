import { mergeMap, pipe, run } from 'millrace'
import { marbles } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { Consumption, seenNext, WAYS } from '../marbles/cancelling.js'
import { at } from '../marbles/handlers.js'
import { expectStats, memoryQueue } from '../support/queues.js'
import { gate, turn } from '../support/wait.js'

describe('stopping', () => {
  it('D3 close of an idle queue takes no time', async () => {
    const { queue } = memoryQueue()
    const iterator = queue.source()[Symbol.asyncIterator]()
    const waiting = iterator.next().catch((error: Error) => error.constructor.name)
    await turn()
    const startedAt = performance.now()
    await queue.close()
    expect(performance.now() - startedAt).toBeLessThan(50)
    expect(await waiting).toBe('ClosedError')
  })

  it('D5 after close with a handler that never ends, nothing more is asked of the backend', async () => {
    const { queue, backend } = memoryQueue({ leaseMs: 50 })
    await queue.enqueue('a')
    const delivery = await queue.receive()
    await queue.close({ graceMs: 5 })
    const calls = backend.calls.length
    await new Promise((resolve) => setTimeout(resolve, 80))
    expect(backend.calls.length).toBe(calls)
    expect(await delivery?.ack()).toBe('stale')
    expect(backend.calls.length).toBe(calls)
  })

  it('D7 a graceful stop does not abort a handler until the drain is over', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    const source = queue.source()
    const { value } = await source[Symbol.asyncIterator]().next()
    const stopping = source.stop({ drainMs: 5_000 })
    await turn()
    expect(value?.signal.aborted).toBe(false)
    expect(await value?.ack()).toBe('settled')
    expect(await stopping).toEqual({ released: 0, settledDuringGrace: 1, abandoned: 0 })
  })

  it('D11 work goes on after pause and resume, and a resume while closing revives nothing', async () => {
    const { queue } = memoryQueue()
    await queue.pause()
    await queue.enqueue('a')
    const waiting = queue.receive()
    await turn()
    await expectStats(queue, { ready: 1, claimed: 0, paused: true })
    await queue.resume()
    expect((await waiting)?.payload).toBe('a')
    const closing = queue.close({ graceMs: 0 })
    await expect(queue.resume()).rejects.toMatchObject({ code: 'ERR_MILLRACE_CLOSED' })
    expect(await closing).toMatchObject({ released: 1 })
  })

  it('D13 a shutdown is no failure: the only attempt is not spent', async () => {
    const { queue } = memoryQueue({ maxDeliveries: 1 })
    await queue.enqueue('a')
    const started = gate()
    const stop = new AbortController()
    const running = run(
      pipe(
        queue.source(),
        mergeMap(async ({ signal }) => {
          started.open()
          await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
        }, 1),
      ),
      { signal: stop.signal },
    )
    await started.promise
    stop.abort()
    expect(await running).toMatchObject({ released: 1, deadLettered: 0 })
    await expectStats(queue, { ready: 1, dead: 0 })
    expect(await queue.tryReceive()).toMatchObject({ attempt: 1 })
  })

  it('D15 the second signal forces', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    const started = gate()
    const stop = new AbortController()
    const kill = new AbortController()
    const running = run(
      pipe(
        queue.source(),
        mergeMap(() => {
          started.open()
          return new Promise(() => {})
        }, 1),
      ),
      { signal: stop.signal, killSignal: kill.signal, drainMs: 60_000, graceMs: 60_000 },
    )
    await started.promise
    stop.abort()
    kill.abort()
    expect(await running).toMatchObject({ released: 1 })
  })

  it.each(WAYS)('C5 a cancel in the tick of the claim gives back what is granted after it (%s)', (way) => {
    let log: string[] = []
    let seen: string[] = []
    let released: unknown
    marbles((helpers) => {
      const queue = helpers.testQueue('-----a', undefined, { latencies: { claim: '--r' } })
      const consumption = new Consumption(helpers, queue, way, (source) => source)
      log = consumption.log
      const cancelOnceClaimed = () => {
        const claims = queue.backend.calls.filter((verb) => verb === 'claim').length
        if (claims === 2) consumption.cancel()
        else at(helpers, 0, cancelOnceClaimed)
      }
      at(helpers, 5, cancelOnceClaimed)
      helpers.expectSubscriptions(queue.claimsOf('a')).toBe(['-----^-!', '--------^-!'])
      seen = seenNext(helpers, queue, 8)
      at(helpers, 20, () => {
        released = consumption.released
      })
    })
    expect(log).toContain('7 cancelled')
    expect(log.filter((line) => line.includes('out'))).toEqual([])
    expect(seen).toEqual(['a 1 1'])
    expect(released).toEqual({ released: 1, settledDuringGrace: 0, abandoned: 0 })
  })
})
