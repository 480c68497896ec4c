import {
  batch,
  bytes,
  collect,
  concatMap,
  type Delivery,
  filter,
  InvalidOptionError,
  mapPayload,
  mergeMap,
  pipe,
  process as processed,
  retryInPlace,
  retryLater,
  run,
} from 'millrace'
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

describe('mapPayload and filter', () => {
  it('mapPayload changes the payload and keeps the claim; a throw is a failure of that delivery alone', async () => {
    const { source, queue } = await filled('1', 'x', '3')
    const mapped = mapPayload((text: string) => {
      if (text === 'x') throw new Error('not a number')
      return Number(text)
    })
    expect(
      await collect(
        pipe(
          source,
          mapped,
          concatMap(({ payload }) => payload + 1),
        ),
      ),
    ).toEqual([2, 4])
    await expectStats(queue, { ackedTotal: 2, delayed: 1 })
  })

  it.each([
    ['ack', { ackedTotal: 3 }],
    ['requeue', { ackedTotal: 1, delayed: 2 }],
    ['dead-letter', { ackedTotal: 1, dead: 2 }],
  ] as const)('filter settles what does not pass by %s', async (otherwise, stats) => {
    const { source, queue } = await filled(1, 2, 3)
    const passed = await collect(
      pipe(
        source,
        filter(({ payload }) => payload === 2, { otherwise }),
        concatMap(({ payload }) => payload),
      ),
    )
    expect(passed).toEqual([2])
    await expectStats(queue, stats)
  })

  it('filter asks for another in place of what it settled, also where the observer cannot ask', async () => {
    const { queue } = await filled(1, 2, 3, 4)
    const seen: number[] = []
    const source = queue.source()
    const subscription = pipe(
      source,
      filter(({ payload }) => payload % 2 === 0, { otherwise: 'ack' }),
    ).subscribe((delivery) => {
      seen.push(delivery.payload)
      void delivery.ack()
    })
    await until('both came', () => seen.length === 2)
    subscription.unsubscribe()
    await source.stop()
    await expectStats(queue, { ackedTotal: 4 })
  })

  it('a predicate that throws fails the delivery', async () => {
    const { source, queue } = await filled(1)
    const broken = filter<number>(
      () => {
        throw new Error('broken')
      },
      { otherwise: 'ack' },
    )
    expect(
      await collect(
        pipe(
          source,
          broken,
          concatMap(() => 1),
        ),
      ),
    ).toEqual([])
    await expectStats(queue, { delayed: 1 })
  })

  it('filter without otherwise is refused', () => {
    expect(() => filter(() => true, {} as never)).toThrow(InvalidOptionError)
  })
})

describe('batch', () => {
  it('gathers by size and by time, and a handler settles every member', async () => {
    const { source, queue } = await filled(1, 2, 3, 4, 5)
    const sizes = await collect(
      pipe(
        source,
        batch({ size: 2, withinMs: 5 }),
        mergeMap((ds) => ds.map((d) => d.payload).join(), 1),
      ),
    )
    expect(sizes).toEqual(['1,2', '3,4', '5'])
    await expectStats(queue, { ackedTotal: 5 })
  })

  it('members settle by themselves too, and a failure settles only the rest', async () => {
    const { source, queue } = await filled(1, 2, 3)
    await run(
      pipe(
        source,
        batch({ size: 3, withinMs: 5 }),
        mergeMap(async (ds) => {
          await ds[0]?.ack()
          throw new Error('the rest')
        }, 1),
      ),
    )
    await expectStats(queue, { ackedTotal: 1, delayed: 2 })
  })

  it('what has gathered when it is stopped goes back unseen', async () => {
    const { queue } = await filled(1, 2)
    const source = queue.source()
    const iterator = pipe(source, batch({ size: 3, withinMs: 60_000 }))[Symbol.asyncIterator]()
    const waiting = iterator.next()
    await until('both are gathered', async () => (await queue.stats()).claimed === 2)
    await source.stop()
    expect(await waiting).toEqual({ done: true, value: undefined })
    expect(await queue.tryReceive()).toMatchObject({ payload: 1, attempt: 1, deliveryCount: 1 })
  })

  it('what has gathered when the loop is left goes back unseen too', async () => {
    const { queue } = await filled(1, 2, 3)
    const iterator = pipe(queue.source(), batch({ size: 2, withinMs: 60_000 }))[Symbol.asyncIterator]()
    const { value } = await iterator.next()
    expect(value?.map((d) => d.payload)).toEqual([1, 2])
    const waiting = iterator.next()
    await until('the third is gathered', async () => (await queue.stats()).claimed === 3)
    await iterator.return?.()
    expect(await waiting).toEqual({ done: true, value: undefined })
    await expectStats(queue, { claimed: 0, ready: 3 })
    expect(await queue.tryReceive()).toMatchObject({ payload: 1, attempt: 2 })
  })

  it('an observer that cannot ask gets the next batch when the last is settled', async () => {
    const { queue } = await filled(1, 2, 3, 4)
    const source = queue.source()
    const batches: Delivery<number>[][] = []
    const subscription = pipe(source, batch({ size: 2, withinMs: 5 })).subscribe((ds) => batches.push(ds))
    await until('the first came', () => batches.length === 1)
    await turn()
    await expectStats(queue, { claimed: 2, ready: 2 })
    await Promise.all(batches[0]?.map((d) => d.ack()) ?? [])
    await until('the second came', () => batches.length === 2)
    subscription.unsubscribe()
    await source.stop({ graceMs: 0 })
  })

  it('needs both bounds', () => {
    expect(() => batch({ size: 2 } as never)).toThrow('batch.withinMs')
    expect(() => batch({ size: 0, withinMs: 1 })).toThrow('batch.size')
  })
})

describe('failure policies', () => {
  it('the one nearest the handler is asked first: in place, then later', async () => {
    const { source, queue } = await filled('a')
    let runs = 0
    await run(
      pipe(
        source,
        retryLater({ baseMs: 60_000, jitter: 0 }),
        retryInPlace({ times: 2, baseMs: 1, jitter: 0 }),
        mergeMap(({ attempt }) => {
          runs += 1
          expect(attempt).toBe(1)
          throw new Error('again')
        }, 1),
      ),
    )
    expect(runs).toBe(3)
    await expectStats(queue, { delayed: 1 })
  })

  it('in place it succeeds under the same claim', async () => {
    const { source, queue } = await filled('a')
    let runs = 0
    const handler = async () => {
      runs += 1
      if (runs < 3) throw new Error('not yet')
      return runs
    }
    expect(await collect(pipe(source, retryInPlace({ times: 5 }), mergeMap(handler, 1)))).toEqual([3])
    await expectStats(queue, { ackedTotal: 1 })
  })

  it('a cancel ends the pause between two runs in place, and the message is released', async () => {
    const { queue } = await filled('a')
    const source = queue.source()
    const failed = gate()
    const subscription = pipe(
      source,
      retryInPlace({ times: 5, baseMs: 60_000 }),
      mergeMap(() => {
        failed.open()
        throw new Error('pause')
      }, 1),
    ).subscribe()
    await failed.promise
    await turn()
    subscription.unsubscribe()
    expect(await source.stop()).toMatchObject({ released: 1 })
    expect(await queue.tryReceive()).toMatchObject({ attempt: 1 })
  })

  it('a policy that throws has no say', async () => {
    const { source, queue } = await filled('a')
    const broken = retryLater(() => {
      throw new Error('broken policy')
    })
    await run(
      pipe(
        source,
        broken,
        mergeMap(() => {
          throw new Error('failed')
        }, 1),
      ),
    )
    await expectStats(queue, { delayed: 1 })
  })

  it.each([Number.NaN, -5, Number.POSITIVE_INFINITY])('a backoff function that gives %s is now', async (delayMs) => {
    const { source, queue } = await filled('a')
    await run(
      pipe(
        source,
        retryLater(() => delayMs),
        mergeMap(({ attempt }) => {
          if (attempt === 1) throw new Error('once')
        }, 1),
      ),
    )
    await expectStats(queue, { ackedTotal: 1 })
  })

  it('options are closed lists', () => {
    expect(() => retryLater({ base: 1 } as never)).toThrow('retryLater.base')
    expect(() => retryInPlace({} as never)).toThrow('retryInPlace.times')
    expect(() => retryLater({ factor: 0.5 })).toThrow('retryLater.factor must be a number from 1 to 1000')
  })
})

it('bytes() keeps bytes, and refuses anything else', async () => {
  const { queue } = memoryQueue<Uint8Array>({ codec: bytes() })
  const payload = Uint8Array.of(0, 1, 255, 0)
  await queue.enqueue(payload)
  expect((await queue.receive())?.payload).toEqual(payload)
  await expect(queue.enqueue('text' as never)).rejects.toThrow('payload must be a Uint8Array, not "text"')
})
