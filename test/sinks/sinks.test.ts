import { collect, concatMap, consume, drain, forEach, mergeMap, pipe, run, toQueue } from 'millrace'
import { map, of, throwError } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { expectStats, memoryQueue, queueOn } from '../support/queues.js'
import { gate, turn, until } from '../support/wait.js'

const NOTHING = { acked: 0, requeued: 0, deadLettered: 0, lost: 0, released: 0, settledDuringGrace: 0, abandoned: 0 }

describe('run', () => {
  it('fulfils with the account when its signal stops it, also through operators of RxJS', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    const stop = new AbortController()
    const seen: string[] = []
    const running = run(
      pipe(
        queue.source({ credit: 2 }),
        map((delivery) => delivery),
        mergeMap(({ payload }) => void seen.push(payload), 2),
      ),
      { signal: stop.signal },
    )
    await until('it is handled', () => seen.length === 1)
    stop.abort()
    expect(await running).toEqual({ ...NOTHING, acked: 1 })
  })

  it('an aborted signal means no I/O and an empty account', async () => {
    const { queue, backend } = memoryQueue()
    expect(await run(queue.source(), { signal: AbortSignal.abort() })).toEqual(NOTHING)
    expect(backend.calls).toEqual([])
  })

  it("fulfils when the source's own signal ended it", async () => {
    const { queue } = memoryQueue()
    const stop = new AbortController()
    const running = run(
      pipe(
        queue.source({ signal: stop.signal }),
        mergeMap(() => 1, 1),
      ),
    )
    await turn()
    stop.abort()
    expect(await running).toEqual(NOTHING)
  })

  it('rejects when the flow fails, after everything was given back', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    const broken = pipe(
      queue.source(),
      map(() => {
        throw new Error('broken')
      }),
    )
    await expect(run(broken, { graceMs: 0 })).rejects.toThrow('broken')
    await expectStats(queue, { ready: 1, claimed: 0 })
  })

  it('runs any Observable', async () => {
    expect(await run(of(1, 2, 3))).toEqual(NOTHING)
    await expect(run(throwError(() => new Error('no')))).rejects.toThrow('no')
  })

  it.each([
    [{ graceMs: -1 }, 'run.graceMs'],
    [{ grace: 1 }, 'run.grace'],
    [{ signal: {} }, 'run.signal'],
  ])('refuses %o', (options, field) => {
    const { queue } = memoryQueue()
    expect(() => run(queue.source(), options as never)).toThrow(field)
    expect(() => run(5 as never)).toThrow('run.flow must be a flow, not 5')
  })
})

describe('the other sinks', () => {
  it('drain ends when nothing is ready and nothing is in flight', async () => {
    const { queue } = memoryQueue<number>()
    await queue.enqueueAll([{ payload: 1 }, { payload: 2 }, { payload: 3, delayMs: 60_000 }])
    expect(await drain(pipe(queue.source(), mergeMap(turn, 2)))).toEqual({ ...NOTHING, acked: 2 })
  })

  it('drain waits for a paused queue: that is not empty', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    await queue.pause()
    let done = false
    const draining = drain(
      pipe(
        queue.source(),
        mergeMap(() => 1, 1),
      ),
    ).then(() => {
      done = true
    })
    await turn()
    expect(done).toBe(false)
    await queue.resume()
    await draining
    await expectStats(queue, { ackedTotal: 1 })
  })

  it('consume can tell a throw from a break: it goes on', async () => {
    const { queue } = memoryQueue<number>()
    await queue.enqueueAll([{ payload: 1 }, { payload: 2 }])
    const summary = await consume(queue.source({ until: 'empty' }), async ({ payload }) => {
      if (payload === 1) throw new Error('one')
    })
    expect(summary).toEqual({ ...NOTHING, acked: 1, requeued: 1 })
  })

  it('collect gathers, and a stop ends it', async () => {
    const { queue } = memoryQueue<number>()
    await queue.enqueueAll([{ payload: 1 }, { payload: 2 }])
    const stop = new AbortController()
    const collecting = collect(
      pipe(
        queue.source(),
        concatMap(({ payload }) => payload),
      ),
      { signal: stop.signal },
    )
    await until('both are acked', async () => (await queue.stats()).ackedTotal === 2)
    stop.abort()
    expect(await collecting).toEqual([1, 2])
  })

  it('forEach works on one after the other, and asks for no more meanwhile', async () => {
    const { queue } = memoryQueue<number>()
    await queue.enqueueAll([{ payload: 1 }, { payload: 2 }])
    const hold = gate()
    const seen: number[] = []
    const done = forEach(queue.source({ until: 'empty' }), async (delivery, index) => {
      seen.push(delivery.payload * 10 + index)
      await hold.promise
      await delivery.ack()
    })
    await until('the first is there', () => seen.length === 1)
    await turn()
    await expectStats(queue, { claimed: 1, ready: 1 })
    hold.open()
    await done
    expect(seen).toEqual([10, 21])
  })

  it('forEach that throws gives back what it was given, counted', async () => {
    const { queue } = memoryQueue()
    await queue.enqueue('a')
    const failing = forEach(queue.source(), () => {
      throw new Error('left')
    })
    await expect(failing).rejects.toThrow('left')
    expect(await queue.tryReceive()).toMatchObject({ attempt: 2 })
  })

  it('toQueue moves each message in one step', async () => {
    const { queue, backend } = memoryQueue<number>()
    const other = queueOn<string>(backend)
    await queue.enqueueAll([{ payload: 1 }, { payload: 2 }])
    await toQueue(queue.source({ until: 'empty' }), other, ({ payload }) => `n${payload}`)
    expect(
      await collect(
        pipe(
          other.source({ until: 'empty' }),
          concatMap(({ payload }) => payload),
        ),
      ),
    ).toEqual(['n1', 'n2'])
    await expectStats(queue, { forwardedTotal: 2 })
    const same = queueOn<string>(backend)
    await other.enqueue('again')
    await toQueue(other.source({ until: 'empty' }), same)
    expect(await same.tryTake()).toBe('again')
  })

  it('a forward with bad options, or to what is no queue, is refused, and the claim is kept', async () => {
    const { queue, backend } = memoryQueue()
    const other = queueOn(backend)
    await queue.enqueue('a')
    const delivery = await queue.receive()
    await expect(delivery?.forward(other, 'a', { priority: 65_536 })).rejects.toThrow('forward.priority')
    await expect(delivery?.forward({} as never, 'a')).rejects.toThrow('forward.to must be a Queue')
    await expect(delivery?.forward(other, 1n as never)).rejects.toMatchObject({ code: 'ERR_MILLRACE_PAYLOAD' })
    await expectStats(queue, { claimed: 1 })
    expect(await delivery?.ack()).toBe('settled')
  })

  it('toQueue across backends stores under an id of the origin, then acks', async () => {
    const { queue } = memoryQueue()
    const { queue: elsewhere } = memoryQueue()
    await queue.enqueue('a', { id: 'x' })
    await toQueue(queue.source({ until: 'empty' }), elsewhere, ({ payload }) => payload)
    expect(await elsewhere.receive()).toMatchObject({ id: `${queue.name}/x`, payload: 'a' })
    await expectStats(queue, { ackedTotal: 1 })
  })
})
