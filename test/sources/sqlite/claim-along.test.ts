/** A claim is sent along with the settlements that make room for it. */
import { mergeMap, pipe, process, Queue, run } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'
import { type FaultyBackend, faultyBackend } from 'millrace/testing'
import { afterEach, beforeEach, expect, it } from 'vitest'

let backend: FaultyBackend
let queue: Queue<string>

beforeEach(() => {
  backend = faultyBackend(sqliteBackend(':memory:'))
  queue = new Queue('along', { backend })
})

afterEach(async () => {
  await queue.close({ graceMs: 0 })
  await backend.close()
})

const enqueue = (...payloads: string[]) => queue.enqueueAll(payloads.map((payload) => ({ payload })))

it('the next claim follows the settlement at once, and neither lanes nor claims are ever more than allowed', async () => {
  await enqueue('a', 'b', 'c', 'd', 'e')
  let running = 0
  const most = { running: 0, claimed: 0 }
  await run(
    pipe(
      queue.source({ until: 'empty' }),
      mergeMap(async () => {
        running += 1
        const { claimed } = await queue.stats()
        most.running = Math.max(most.running, running)
        most.claimed = Math.max(most.claimed, claimed)
        running -= 1
      }, 2),
    ),
  )
  expect(most).toEqual({ running: 2, claimed: 2 })
  expect(await queue.stats()).toMatchObject({ ackedTotal: 5, claimed: 0 })
  const verbs = backend.calls.join(' ')
  expect(verbs).toContain('settle claim')
})

it('what was claimed along waits unseen until the settlement is confirmed', async () => {
  await enqueue('a', 'b')
  const seen: string[] = []
  const settle = backend.inject({ verb: 'settle', kind: 'hold-reply' })
  const source = queue.source()
  const running = run(
    pipe(
      source,
      mergeMap(({ payload }) => void seen.push(payload), 1),
    ),
  )
  await settle.reached
  await expect.poll(async () => (await queue.stats()).claimed).toBe(1)
  expect(seen).toEqual(['a'])
  settle.release()
  await expect.poll(() => seen).toEqual(['a', 'b'])
  await expect.poll(async () => (await queue.stats()).ackedTotal).toBe(2)
  await source.stop()
  expect(await running).toMatchObject({ acked: 2, released: 0 })
})

it('a cancel gives back what was claimed along, and counts no delivery', async () => {
  await enqueue('a', 'b')
  const settle = backend.inject({ verb: 'settle', kind: 'hold-reply' })
  const source = queue.source()
  const running = run(
    pipe(
      source,
      mergeMap(() => {}, 1),
    ),
  )
  await settle.reached
  await expect.poll(async () => (await queue.stats()).claimed).toBe(1)
  const stopped = source.stop()
  settle.release()
  expect(await stopped).toMatchObject({ released: 1, abandoned: 0 })
  expect(await running).toMatchObject({ acked: 1, released: 1 })
  const again = await queue.tryReceive()
  expect([again?.payload, again?.attempt, again?.deliveryCount]).toEqual(['b', 1, 1])
})

it('a settlement that is refused keeps its lane, and what was claimed along is handled when there is room', async () => {
  await enqueue('a', 'b')
  const full = new Queue<string>('full', { backend, limits: { maxLength: 1 } })
  await full.enqueue('x')
  const seen: string[] = []
  const source = queue.source()
  const running = run(
    pipe(
      source,
      mergeMap(async (delivery) => {
        seen.push(delivery.payload)
        if (delivery.payload === 'a' && delivery.attempt === 1) await delivery.forward(full, 'a')
      }, 1),
    ),
  )
  await expect.poll(() => seen).toEqual(['a', 'b'])
  await expect.poll(async () => (await queue.stats()).claimed).toBe(0)
  await source.stop()
  expect(await running).toMatchObject({ acked: 1, requeued: 1 })
  await full.close()
})

it('nothing is claimed along for an observer that has to ask for each outcome', async () => {
  await enqueue('a', 'b')
  const settle = backend.inject({ verb: 'settle', kind: 'hold-reply' })
  const outcomes = pipe(
    queue.source(),
    process(() => {}, 1),
  )[Symbol.asyncIterator]()
  const first = outcomes.next()
  await settle.reached
  settle.release()
  expect((await first).value).toMatchObject({ outcome: 'acked' })
  expect(await queue.stats()).toMatchObject({ ready: 1, claimed: 0 })
  await outcomes.return?.()
})
