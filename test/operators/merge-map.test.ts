import { collect, concatMap, type Delivery, mergeMap, pipe, process as processed, run } from 'millrace'
import { map, NEVER, of, take, throwError, timer } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { expectStats, memoryQueue } from '../support/queues.js'
import { gate, turn, until } from '../support/wait.js'

/** A queue that holds these payloads. */
async function filled<T>(...payloads: T[]) {
  const { queue, backend } = memoryQueue<T>()
  await queue.enqueueAll(payloads.map((payload, index) => ({ payload, id: `m${index}` })))
  return { queue, backend, source: queue.source({ until: 'empty' }) }
}

describe('mergeMap', () => {
  it('takes what a handler may give back: a value, an array, a promise, an Observable, an async iterable', async () => {
    const { source, queue } = await filled(0, 1, 2, 3, 4)
    async function* two() {
      yield 'i1'
      yield 'i2'
    }
    const results: unknown[] = ['plain', ['an', 'array'], Promise.resolve('promise'), of('o1', 'o2'), two()]
    const emitted = await collect(
      pipe(
        source,
        concatMap(({ payload }) => results[payload] as string),
      ),
    )
    expect(emitted).toEqual(['plain', ['an', 'array'], 'promise', 'o1', 'o2', 'i1', 'i2'])
    await expectStats(queue, { ackedTotal: 5 })
  })

  it('never runs more handlers than lanes, and claims no more either', async () => {
    const { source, queue } = await filled(...Array.from({ length: 20 }, (_, index) => index))
    let running = 0
    let most = 0
    await run(
      pipe(
        source,
        mergeMap(async () => {
          running += 1
          most = Math.max(most, running)
          expect((await queue.stats()).claimed).toBeLessThanOrEqual(3)
          await turn()
          running -= 1
        }, 3),
      ),
    )
    expect(most).toBe(3)
  })

  it('leaves alone what the handler settled itself', async () => {
    const { source, queue } = await filled('ack', 'requeue', 'release', 'dead')
    const seen = new Set<string>()
    await run(
      pipe(
        source,
        mergeMap(async (delivery: Delivery<string>) => {
          if (seen.has(delivery.payload)) return
          seen.add(delivery.payload)
          if (delivery.payload === 'requeue') await delivery.requeue({ delayMs: 60_000, reason: 'later' })
          else if (delivery.payload === 'release') await delivery.release()
          else if (delivery.payload === 'dead') void delivery.deadLetter({ code: 7 })
        }, 1),
      ),
    )
    await expectStats(queue, { ackedTotal: 2, delayed: 1, dead: 1 })
    for await (const letter of queue.deadLetters) expect(letter.reason).toBe('{"code":7}')
  })

  it('keeps the value as the outcome when it is asked to, and fails what cannot be kept', async () => {
    const { source, queue } = await filled('good', 'bad')
    await run(
      pipe(
        source,
        mergeMap(({ payload }) => (payload === 'good' ? { sum: 3 } : { when: new Date() }), 1, { storeResult: true }),
      ),
    )
    expect(await queue.outcome('m0')).toEqual({ state: 'done', result: { sum: 3 } })
    expect(await queue.outcome('m1', { timeoutMs: 0 })).toEqual({ state: 'pending' })
    await expectStats(queue, { ackedTotal: 1, delayed: 1 })
  })

  it('a taken value that ends the stream does not undo the ack it came from', async () => {
    const { queue } = await filled('a', 'b')
    const source = queue.source()
    const values = await collect(
      pipe(
        source,
        mergeMap(async ({ payload }) => payload, 1),
        take(1),
      ),
    )
    expect(values).toEqual(['a'])
    await source.stop()
    await expectStats(queue, { ackedTotal: 1, ready: 1 })
    const observable = await collect(
      pipe(
        queue.source(),
        mergeMap(({ payload }) => of(payload), 1),
        take(1),
      ),
    )
    expect(observable).toEqual(['b'])
    await expectStats(queue, { ackedTotal: 2, ready: 0 })
  })

  it('unsubscribes an Observable handler and returns an async iterable one when stopped, and releases', async () => {
    const { queue } = await filled('observable', 'iterable')
    const source = queue.source()
    let returned = false
    let unsubscribed = false
    const endless = {
      [Symbol.asyncIterator]: () => ({
        next: () => new Promise<IteratorResult<string>>(() => {}),
        return: async () => {
          returned = true
          return { done: true as const, value: undefined }
        },
      }),
    }
    const started = gate()
    const subscription = pipe(
      source,
      mergeMap(({ payload }) => {
        if (payload === 'iterable') {
          started.open()
          return endless
        }
        return NEVER.pipe(
          map((value) => value as string),
          (inner) => {
            const original = inner.subscribe.bind(inner)
            inner.subscribe = ((observer: never) => {
              const inside = original(observer)
              inside.add(() => {
                unsubscribed = true
              })
              return inside
            }) as typeof inner.subscribe
            return inner
          },
        )
      }, 2),
    ).subscribe()
    await started.promise
    subscription.unsubscribe()
    expect(await source.stop()).toEqual({ released: 2, settledDuringGrace: 0, abandoned: 0 })
    expect([returned, unsubscribed]).toEqual([true, true])
    await expectStats(queue, { ready: 2, claimed: 0 })
  })

  it('unsubscribes an Observable handler whose lease is lost, and its lane is free again', async () => {
    const { queue } = memoryQueue({ leaseMs: 60 })
    await queue.enqueueAll([{ payload: 'endless' }, { payload: 'next' }])
    const source = queue.source()
    const seen: string[] = []
    const handled = pipe(
      source,
      mergeMap(({ payload, attempt }) => {
        seen.push(`${payload} ${attempt}`)
        return payload === 'endless' && attempt === 1 ? NEVER : of(payload)
      }, 1),
    )
    const subscription = handled.subscribe()
    await until('it is handled', () => seen.length === 1)
    await queue.purge({ state: 'claimed' })
    await until('the lane takes the next', () => seen.length === 2)
    expect(seen).toEqual(['endless 1', 'next 1'])
    subscription.unsubscribe()
    await source.stop()
  })

  it('works on what another mergeMap yields, and fails the stream when that fails', async () => {
    const { source } = await filled(1, 2, 3)
    const doubled = pipe(
      source,
      mergeMap(({ payload }) => payload * 2, 1),
      concatMap((value) => {
        if (value === 6) throw new Error('no sixes')
        return value + 1
      }),
    )
    const seen: number[] = []
    await expect(
      (async () => {
        for await (const value of doubled) seen.push(value)
      })(),
    ).rejects.toThrow('no sixes')
    expect(seen).toEqual([3, 5])
  })

  it('one failed handler disturbs no other', async () => {
    const { source, queue } = await filled(0, 1, 2, 3)
    const values = await collect(
      pipe(
        source,
        mergeMap(
          ({ payload }) => (payload === 1 ? throwError(() => new Error('one')) : timer(1).pipe(map(() => payload))),
          2,
        ),
      ),
    )
    expect(values.toSorted()).toEqual([0, 2, 3])
    await expectStats(queue, { ackedTotal: 3, delayed: 1 })
  })

  it('stops starting handlers while results wait for a slow loop', async () => {
    const { queue } = await filled(...Array.from({ length: 20 }, (_, index) => index))
    let started = 0
    const iterator = pipe(
      queue.source(),
      mergeMap(({ payload }) => {
        started += 1
        return payload
      }, 2),
    )[Symbol.asyncIterator]()
    expect(await iterator.next()).toMatchObject({ value: 0 })
    await turn()
    expect(started).toBeLessThanOrEqual(4)
    await iterator.return?.()
    await expectStats(queue, { claimed: 0 })
  })
})

describe('process', () => {
  it('emits how every delivery ended', async () => {
    const { source } = await filled('good', 'bad', 'dead')
    const outcomes = await collect(
      pipe(
        source,
        processed(async (delivery) => {
          if (delivery.payload === 'bad') throw new Error('bad')
          if (delivery.payload === 'dead') await delivery.deadLetter('no')
          return delivery.payload.length
        }, 1),
      ),
    )
    expect(
      outcomes.map(({ outcome, delivery: { id }, value, error }) => [id, outcome, value, (error as Error)?.message]),
    ).toEqual([
      ['m0', 'acked', 4, undefined],
      ['m1', 'requeued', undefined, 'bad'],
      ['m2', 'dead-lettered', undefined, undefined],
    ])
  })
})
