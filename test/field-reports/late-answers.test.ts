/** Answers that come late, not at all, or say no: what is lost by them, and what is not. */
import { BackendError, type Delivery, mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'
import { faultyBackend, marbles } from 'millrace/testing'
import { NEVER, of } from 'rxjs'
import { expect, it } from 'vitest'
import { hinted } from '../../src/testing/conformance/hinted.js'
import { at } from '../marbles/handlers.js'
import { expectStats, memoryQueue } from '../support/queues.js'

it('C3 an outage longer than a lease, while a claim request is on its way, costs a message that nobody saw no attempt', () => {
  const events: string[] = []
  const seen: string[] = []
  marbles((helpers) => {
    const queue = helpers.testQueue('(ab)', undefined, { leaseMs: 1_000 })
    const source = queue.source()
    source.events.subscribe((event) => {
      if (/^lease/.test(event.type)) events.push('id' in event ? `${event.type} ${event.id}` : event.type)
    })
    const handler = ({ attempt, id }: Delivery<string>) => {
      seen.push(`${id}${attempt}`)
      return attempt === 1 ? NEVER : of(id)
    }
    pipe(source, mergeMap(handler, 2)).subscribe()
    at(helpers, 1, () => {
      const fault = queue.backend.inject({ verb: '*', kind: 'fail-request', times: Number.POSITIVE_INFINITY })
      at(helpers, 4_999, () => fault.remove())
    })
  })
  expect(seen).toEqual(['a1', 'b1', 'a2', 'b2'])
  expect(events).toEqual(['lease-expired a', 'lease-expired b'])
})

it('A10 a message whose claim was lost for longer than its lease is delivered as new, and is no dead letter', () => {
  let stats: unknown
  const seen: string[] = []
  marbles((helpers) => {
    const queue = helpers.testQueue('1s a', undefined, { maxDeliveries: 1 }) // default lease of 30 s
    queue.source().subscribe((delivery) => {
      seen.push(`${helpers.scheduler.frame} ${delivery.id}`)
      void delivery.ack()
    })
    at(helpers, 500, () => {
      const fault = queue.backend.inject({ verb: 'claim', kind: 'drop-request', times: Number.POSITIVE_INFINITY })
      at(helpers, 30_500, () => fault.remove())
    })
    at(helpers, 90_000, () => {
      const { dead, ackedTotal } = queue.inspect().stats
      stats = { dead, ackedTotal }
    })
  })
  expect(seen).toHaveLength(1)
  expect(stats).toEqual({ dead: 0, ackedTotal: 1 })
})

it('C13 hints that are back are told as reconnected, and a second loss as reconnecting', () => {
  const log: string[] = []
  marbles((helpers) => {
    const hints = hinted(faultyBackend(memoryBackend({ scheduler: helpers.scheduler })))
    const queue = new Queue<string>('q', { backend: hints.backend })
    const source = queue.source()
    source.events.subscribe(({ type }) => {
      if (type.startsWith('reconnect')) log.push(type)
    })
    source.subscribe((delivery) => void delivery.ack())
    at(helpers, 10, () => hints.end(new BackendError('Unauthenticated')))
    at(helpers, 5_000, () => void queue.enqueue('x'))
    at(helpers, 10_000, () => hints.end(new BackendError('Unauthenticated')))
    at(helpers, 20_000, () => void queue.enqueue('y'))
  })
  expect(log).toEqual(['reconnecting', 'reconnected', 'reconnecting', 'reconnected'])
})

it('C11 a message that comes while hints are lost and a slow claim is on its way is delivered', () => {
  const seen: string[] = []
  marbles((helpers) => {
    const faulty = faultyBackend(memoryBackend({ scheduler: helpers.scheduler }))
    const hints = hinted(faulty)
    const queue = new Queue<string>('q', { backend: hints.backend })
    const claim = faulty.inject({ verb: 'claim', kind: 'hold-reply' }) // run at 0: the queue is empty
    queue.source().subscribe(({ payload }) => seen.push(payload))
    at(helpers, 10, () => hints.end(new BackendError('gone')))
    at(helpers, 20, () => void queue.enqueue('x')) // no hint: nobody listens
    at(helpers, 4_000, () => claim.release()) // after the poll at 2 010 has listened again
  })
  expect(seen).toEqual(['x'])
})

it('G10 a settlement that the store refuses as a whole leaves the claim held', async () => {
  const { queue, backend } = memoryQueue()
  await queue.enqueue('a')
  const delivery = await queue.receive()
  backend.inject({ verb: 'settle', kind: 'fail-request', error: new BackendError('out of memory') })
  await expect(delivery?.ack()).rejects.toThrow('out of memory')
  await expectStats(queue, { claimed: 1 })
  expect(delivery?.signal.aborted).toBe(false)
  expect(delivery?.settled).toBe(false)
  expect(await delivery?.ack()).toBe('settled')
})

it('G10 a settlement that is refused, and what is tried instead too, leaves no lane and no claim behind', async () => {
  const { queue, backend } = memoryQueue({ leaseMs: 100 })
  await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
  backend.inject({ verb: 'settle', kind: 'fail-request', times: 2, error: new BackendError('out of room') })
  const seen: string[] = []
  const source = queue.source()
  const running = run(
    pipe(
      source,
      mergeMap(({ payload, attempt }) => void seen.push(`${payload}${attempt}`), 1),
    ),
  )
  await expect.poll(() => seen).toEqual(['a1', 'b1', 'a2'])
  await expect.poll(async () => (await queue.stats()).ackedTotal).toBe(2)
  await source.stop()
  expect(await running).toMatchObject({ acked: 2, lost: 1, abandoned: 0 })
})

it.each(['take', 'autoAck'])(
  'G10 what was taken is never delivered again, though its ack was refused (%s)',
  async (way) => {
    const { queue, backend } = memoryQueue({ leaseMs: 80 })
    await queue.enqueue('a')
    backend.inject({ verb: 'settle', kind: 'fail-request', error: new BackendError('out of room') })
    if (way === 'take') expect(await queue.take()).toBe('a')
    else for await (const { payload } of queue.source({ autoAck: true })) if (payload === 'a') break
    await expect.poll(async () => (await queue.stats()).droppedTotal).toBe(1)
    expect(await queue.tryReceive()).toBeUndefined()
  },
)
