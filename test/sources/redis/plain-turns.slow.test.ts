/** Random courses of turns, most of them plain: each goes as it would without what the scripts have for plain turns. */
import fc from 'fast-check'
import { afterAll, expect, it } from 'vitest'
import type { ClaimRequest, NewMessage, SettleCommand, SharedSettings } from '../../../src/driver.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { message } from '../memory/harness.js'
import { type Ask, Course, type PlainName, sidesOn } from './plain-turns-course.js'

const server = await startRedis()
const sides = sidesOn(server.url)
afterAll(async () => {
  for (const { redis } of sides) redis.disconnect()
  await server.stop()
})

type Move = (course: Course) => Promise<void>
/** What to ask for, once it is known what was claimed. */
type Choose = (course: Course) => Ask

/** Some come again and again. */
const id = fc.oneof(fc.constantFrom('é\0', 'a', 'b', 'c', 'd', 'e'), fc.nat({ max: 999 }).map(String))
const rarely = fc.nat({ max: 19 }).map((value) => value === 19)

const nothing = Array<Partial<NewMessage>>(40).fill({})
const late = { ttlMs: 100, whenExpired: 'dead-letter' } as const
const more = fc.constantFrom(...nothing, { delayMs: 5 }, { ttlMs: 10 }, late, { key: 'k' }, { headers: { a: 'b' } })
const newMessage = fc
  .record({ id, priority: fc.nat({ max: 2 }), bytes: fc.uint8Array({ maxLength: 20 }), more })
  .map(({ more, ...plain }) => message({ ...plain, ...more }))

const enqueue = fc.array(newMessage, { maxLength: 4 }).map(
  (batch): Choose =>
    () =>
    (driver, token) =>
      driver.enqueue(batch, token),
)

const wanted = fc.record({
  max: fc.constantFrom(1, 2, 3, 10),
  leaseMs: fc.constantFrom(20, 100, 100, 100, 1_000, Number.MAX_SAFE_INTEGER),
  take: rarely,
  consumer: fc.constantFrom('', 'c', 'consumer'),
})
const claim = wanted.map(
  (request): Choose =>
    (course) =>
      claiming(course, request),
)

function claiming({ claims }: Course, request: Omit<ClaimRequest, 'token'>): Ask {
  return (driver, token) => driver.claim({ ...request, token }).then((reply) => claims.push(...reply.claims))
}

type Named = Pick<SettleCommand, 'id' | 'token'>

/** Mostly a live claim; seldom one that is named once more later, or one that was never granted. */
const named = fc
  .record({ back: fc.nat({ max: 30 }), again: rarely, forge: rarely, id, token: fc.nat({ max: 20 }).map(String) })
  .map(({ back, again, forge, id, token }) => ({ claims }: Course): Named => {
    const index = claims.length - 1 - (back % Math.max(1, claims.length))
    const found = forge ? undefined : claims[index]
    if (found === undefined) return { id, token }
    if (!again) claims.splice(index, 1)
    return { id: found.id, token: found.token }
  })

const acks = fc.array(named, { minLength: 1, maxLength: 4 }).map(
  (picks): Choose =>
    (course) => {
      const commands = picks.map((pick) => ({ ...pick(course), kind: 'ack' as const }))
      return (driver, token) => driver.settle(commands, token)
    },
)

const ends: ((claim: Named) => SettleCommand)[] = [
  (claim) => ({ ...claim, kind: 'ack', result: Buffer.from('r') }),
  (claim) => ({ ...claim, kind: 'release', delivered: true }),
  (claim) => ({ ...claim, kind: 'requeue', countAttempt: true, delayMs: 0 }),
  (claim) => ({ ...claim, kind: 'requeue', countAttempt: false, delayMs: 20, reason: 'why' }),
  (claim) => ({ ...claim, kind: 'dead-letter', reason: 'bad' }),
]
const otherEnd = fc.tuple(fc.constantFrom(...ends), named).map(
  ([end, pick]): Choose =>
    (course) => {
      const command = end(pick(course))
      return (driver, token) => driver.settle([command], token)
    },
)

const unbounded = { maxLength: null, maxBytes: null, maxPayloadBytes: 1_000, whenFull: 'reject' } as const
const settings = fc.constantFrom<Partial<SharedSettings>[]>(
  { retention: { outcomesMs: 0, maxOutcomes: 100 } },
  { retention: { outcomesMs: 50, maxOutcomes: 10_000 } },
  { retention: { outcomesMs: 5e15, maxOutcomes: 0 } },
  { retention: { outcomesMs: 3_600_000, maxOutcomes: 2 } },
  { limits: { ...unbounded, maxLength: 6, whenFull: 'dropOldest' } },
  { limits: { ...unbounded, maxPayloadBytes: 10 } },
  { limits: unbounded, ageing: null },
  { limits: unbounded, ageing: null },
  { ageing: { stepMs: 100, cap: 1 } },
  { maxDeliveries: 1 },
)
const configure = settings.map(
  (changes): Choose =>
    () =>
    (driver) =>
      driver.configure(changes),
)

/** What is never plain itself, but leaves a queue that has to be looked at. */
const others: ((id: string) => Ask)[] = [
  () => (driver) => driver.sweep(10),
  () => (driver) => driver.sweep(256),
  () => (driver) => driver.stats(),
  () => (driver) => driver.pause(),
  () => (driver) => driver.resume(),
  () => (driver) => driver.resume(),
  () => (driver, token) => driver.purge(['ready'], 5, token),
  (id) => (driver, token) => driver.cancel(id, token),
  (id) => (driver, token) => driver.requeueDead([id], token),
  (id) => (driver) => driver.outcome(id, true),
]
const other = fc.tuple(fc.constantFrom(...others), id).map(
  ([ask, id]): Choose =>
    () =>
      ask(id),
)
const renew = named.map(
  (pick): Choose =>
    (course) => {
      const renewal = { ...pick(course), leaseMs: 500 }
      return (driver) => driver.renew([renewal])
    },
)

const order = fc.constantFrom(...Array<'next'>(8).fill('next'), 'leave' as const, 'left' as const)
const sender = fc.tuple(fc.constantFrom<(0 | 1)[]>(0, 0, 0, 0, 0, 0, 1), order, fc.constantFrom(0, 1, 3, 99, 99, 99))

function turn(...requests: fc.Arbitrary<Choose>[]): fc.Arbitrary<Move> {
  const all = fc.tuple(...requests.map((choose) => fc.tuple(choose, sender)))
  return all.map(
    (each): Move =>
      (course) =>
        course.turn(each.map(([choose, from]) => [choose(course), course.token(...from)])),
  )
}

/** What only a person would do: deletes a key, or one of its fields. */
const byHand = fc.tuple(fc.constantFrom('m', 'p', 'r', 'c', 't', 'e', 'q'), id).map(
  ([suffix, field]): Move =>
    (course) =>
      course.deleteIn(suffix, suffix === 'm' || suffix === 'p' ? field : undefined),
)

const action: fc.Arbitrary<Move> = fc.oneof(
  { weight: 22, arbitrary: turn(enqueue) },
  { weight: 8, arbitrary: turn(enqueue, enqueue) },
  { weight: 20, arbitrary: turn(claim) },
  { weight: 12, arbitrary: turn(acks) },
  { weight: 18, arbitrary: turn(acks, claim) },
  { weight: 4, arbitrary: turn(otherEnd, claim) },
  { weight: 2, arbitrary: turn(claim, claim) },
  {
    weight: 6,
    arbitrary: fc.nat({ max: 5 }).map(
      (back): Move =>
        (course) =>
          course.again(back),
    ),
  },
  { weight: 2, arbitrary: turn(configure) },
  { weight: 5, arbitrary: turn(fc.oneof(other, renew)) },
  { weight: 1, arbitrary: byHand },
)
const waits = fc.constantFrom(...Array<number>(14).fill(0), 1, 1, 5, 30, 200, 2_000, -20)
const move = fc.tuple(waits, action).map(
  ([ms, act]): Move =>
    async (course) => {
      await course.wait(ms)
      await act(course)
    },
)

/** Turns that have to do with hundreds, and answers that come to many bytes. */
const large = fc
  .record({
    count: fc.nat({ max: 500 }),
    repeated: fc.constantFrom(0, 0, 0, 20),
    acked: fc.integer({ min: 1, max: 400 }),
    max: fc.integer({ min: 1, max: 500 }),
    leaseMs: fc.constantFrom(100, 1_000),
    ms: fc.constantFrom(0, 0, 1, 30, 200),
    unconfirmed: fc.constantFrom(2, 99, 99),
    again: rarely,
  })
  .map(
    ({ count, repeated, acked, max, leaseMs, ms, unconfirmed, again }): Move =>
      async (course) => {
        const token = () => course.token(0, 'next', unconfirmed)
        const round = course.log.length
        const idOf = (index: number) => (index < repeated ? `${index}` : `${round}.${index}`)
        const batch = Array.from({ length: count }, (_, index) => message({ id: idOf(index), priority: index % 3 }))
        const commands = course.claims.splice(0, acked).map(({ id, token }) => ({ kind: 'ack' as const, id, token }))
        const request = { max, leaseMs, take: false, consumer: 'c' }
        await course.wait(ms)
        await course.turn([[(driver, token) => driver.enqueue(batch, token), token()]])
        await course.turn([
          [(driver, token) => driver.settle(commands, token), token()],
          [claiming(course, request), token()],
        ])
        if (again) await course.again(0)
      },
  )
const keeping = fc.constantFrom(0, 5, 1_000, 10_000).map(
  (maxOutcomes): Move =>
    (course) => {
      const retention = { outcomesMs: 3_600_000, maxOutcomes }
      return course.turn([[(driver) => driver.configure({ retention }), course.token(0, 'next', 0)]])
    },
)

const smallCourse = fc.array(move, { minLength: 40, maxLength: 120, size: 'max' })
const largeCourse = fc
  .tuple(keeping, fc.array(large, { minLength: 8, maxLength: 16, size: 'max' }))
  .map(([first, rest]) => [first, ...rest])

/** How many turns were plain. */
type Tally = Record<PlainName, number>

async function run(moves: readonly Move[], tally: Tally): Promise<void> {
  const course = new Course(sides)
  await course.begin()
  try {
    for (const each of moves) await each(course)
    await course.compare()
  } catch (cause) {
    throw new Error(`after\n  ${course.log.join('\n  ')}`, { cause })
  }
  tally.enqueue += await course.plainTurns('enqueue')
  tally.consume += await course.plainTurns('consume')
}

it.each([
  { size: 'small', moves: smallCourse, numRuns: 80, least: 300 },
  { size: 'large', moves: largeCourse, numRuns: 8, least: 5 },
])('plain turns go as all others: $size', async ({ moves, numRuns, least }) => {
  const tally = { enqueue: 0, consume: 0 }
  // One function for all moves: a report would show no more than its text.
  const course = moves.map((all) => () => run(all, tally))
  const property = fc.asyncProperty(course, (go) => go())
  await fc.assert(property, { numRuns, endOnFailure: false, interruptAfterTimeLimit: 60_000 })
  expect(Math.min(tally.enqueue, tally.consume)).toBeGreaterThan(least)
})
