/** Random requests to two backends at once. Time is kept out: delays, leases and lives are none or far away. */
import fc from 'fast-check'
import type { Claim, NewMessage, SettleCommand, SharedSettings } from '../../../src/driver.js'
import { IDS, type Pair, QUEUES, type Side } from './pair.js'

export type Command = (pair: Pair) => Promise<void>

const FAR_MS = 100_000_000

const queue = fc.nat({ max: QUEUES.length - 1 })
const id = fc.constantFrom(...IDS)
/** Mostly a late claim, which is often live; sometimes an old one. */
const pick = fc.oneof({ weight: 4, arbitrary: fc.nat({ max: 3 }) }, { weight: 1, arbitrary: fc.nat({ max: 30 }) })
const repeat = fc.integer({ min: 0, max: 5 }).map((value) => value === 0)
const bytes = fc.uint8Array({ maxLength: 6 })

const newMessage: fc.Arbitrary<NewMessage> = fc
  .record({
    id,
    bytes,
    priority: fc.constantFrom(0, 0, 0, 1, 2, 700, 65_535),
    delayMs: fc.constantFrom(0, 0, 0, 0, -1, FAR_MS, FAR_MS + 0.5),
    key: fc.constantFrom(undefined, undefined, 'k'),
    headers: fc.constantFrom(undefined, undefined, { h: 'ä' }, {}),
    ttlMs: fc.constantFrom(undefined, undefined, FAR_MS),
    whenExpired: fc.constantFrom(undefined, 'drop' as const, 'dead-letter' as const),
  })
  .map((fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never)

const batch = fc.array(newMessage, { maxLength: 5 })

function told(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) => (each instanceof Uint8Array ? `${each.byteLength} bytes` : each))
}

const enqueue = fc.tuple(queue, batch, repeat).map(
  ([to, messages, again]): Command =>
    (pair) =>
      pair.ask(`enqueue ${QUEUES[to]} ${told(messages)}`, to, again, (driver, _, token) =>
        driver.enqueue(messages, token),
      ),
)

const claim = fc
  .tuple(queue, fc.integer({ min: 1, max: 5 }), fc.boolean(), repeat, fc.constantFrom(FAR_MS, FAR_MS + 0.5, 2 * FAR_MS))
  .map(
    ([from, max, take, again, leaseMs]): Command =>
      (pair) =>
        pair.ask(`claim ${QUEUES[from]} ${max}${take ? ' to take' : ''}`, from, again, async (driver, side, token) => {
          const reply = await driver.claim({ token, max, leaseMs, take, consumer: 'c' })
          side.nextDueMs = reply.nextDueMs
          const known = side.claims[from] as Claim[]
          for (const each of reply.claims) if (!known.some(({ token }) => token === each.token)) known.push(each)
          return reply
        }),
  )

type Ending = (named: { id: string; token: string }) => SettleCommand

const carry = fc.array(fc.record({ queue: fc.constantFrom(...QUEUES), message: newMessage }), {
  minLength: 1,
  maxLength: 3,
})
const result = fc.option(bytes, { nil: undefined })

const ending: fc.Arbitrary<Ending> = fc.oneof(
  result.map(
    (each): Ending =>
      (named) => ({ ...named, kind: 'ack', ...(each !== undefined && { result: each }) }),
  ),
  fc.tuple(result, carry).map(
    ([each, parcels]): Ending =>
      (named) => ({ ...named, kind: 'ack', carry: parcels, ...(each !== undefined && { result: each }) }),
  ),
  fc
    .record({
      delayMs: fc.constantFrom(0, 0, FAR_MS),
      countAttempt: fc.boolean(),
      reason: fc.constantFrom(undefined, '', 'worse'),
    })
    .map(
      ({ delayMs, countAttempt, reason }): Ending =>
        (named) => ({ ...named, kind: 'requeue', delayMs, countAttempt, ...(reason !== undefined && { reason }) }),
    ),
  fc.boolean().map(
    (delivered): Ending =>
      (named) => ({ ...named, kind: 'release', delivered }),
  ),
  fc.constantFrom('bad', '').map(
    (reason): Ending =>
      (named) => ({ ...named, kind: 'dead-letter', reason }),
  ),
  carry.map(
    (parcels): Ending =>
      (named) => ({ ...named, kind: 'dead-letter', reason: 'gone', carry: parcels }),
  ),
)

function chosen(side: Side, from: number, back: number): { id: string; token: string } {
  const claims = side.claims[from] as Claim[]
  const found = claims[claims.length - 1 - (back % Math.max(1, claims.length))]
  return found === undefined ? { id: 'm0', token: '1' } : { id: found.id, token: found.token }
}

const settle = fc.tuple(queue, fc.array(fc.tuple(pick, ending), { minLength: 1, maxLength: 3 }), repeat).map(
  ([from, endings, again]): Command =>
    (pair) => {
      const commandsFor = (side: Side) => endings.map(([back, each]) => each(chosen(side, from, back)))
      const what = `settle ${QUEUES[from]} ${told(commandsFor(pair.sides[0]))}`
      return pair.ask(what, from, again, (driver, side, token) => driver.settle(commandsFor(side), token))
    },
)

const renew = fc.tuple(queue, pick, fc.option(fc.uint8Array({ minLength: 1, maxLength: 3 }), { nil: undefined })).map(
  ([from, back, progress]): Command =>
    (pair) =>
      pair.ask(`renew ${QUEUES[from]}`, from, false, (driver, side) =>
        driver.renew([
          { ...chosen(side, from, back), leaseMs: FAR_MS, ...(progress !== undefined && { progress }) },
          { id: 'nobody', token: '1', leaseMs: FAR_MS },
        ]),
      ),
)

const cancel = fc.tuple(queue, id, repeat).map(
  ([from, which, again]): Command =>
    (pair) =>
      pair.ask(`cancel ${QUEUES[from]} ${which}`, from, again, (driver, _, token) => driver.cancel(which, token)),
)

/** Where the order is not promised all is purged at once. */
const purge = fc
  .tuple(
    queue,
    fc.constantFrom(
      ...[
        { states: ['ready'] as const, limit: 2 },
        { states: ['dead', 'ready'] as const, limit: 3 },
      ],
      ...[
        { states: ['ready', 'delayed'] as const, limit: 100 },
        { states: ['claimed'] as const, limit: 100 },
      ],
      { states: ['claimed', 'dead', 'delayed', 'ready'] as const, limit: 100 },
    ),
    repeat,
  )
  .map(
    ([from, { states, limit }, again]): Command =>
      (pair) =>
        pair.ask(`purge ${QUEUES[from]} ${states} ${limit}`, from, again, (driver, _, token) =>
          driver.purge(states, limit, token),
        ),
  )

const ids = fc.array(id, { maxLength: 4 })

const requeueDead = fc.tuple(queue, ids, repeat).map(
  ([from, which, again]): Command =>
    (pair) =>
      pair.ask(`requeueDead ${QUEUES[from]} ${which}`, from, again, (driver, _, token) =>
        driver.requeueDead(which, token),
      ),
)

const purgeDead = fc.tuple(queue, ids, repeat).map(
  ([from, which, again]): Command =>
    (pair) =>
      pair.ask(`purgeDead ${QUEUES[from]} ${which}`, from, again, (driver, _, token) => driver.purgeDead(which, token)),
)

const pause = fc.tuple(queue, fc.constantFrom(true, false, false)).map(
  ([from, paused]): Command =>
    (pair) =>
      pair.ask(paused ? 'pause' : 'resume', from, false, (driver) => (paused ? driver.pause() : driver.resume())),
)

const sweep = queue.map(
  (from): Command =>
    (pair) =>
      pair.ask('sweep', from, false, async (driver, side) => {
        const reply = await driver.sweep(10)
        side.nextDueMs = reply.nextDueMs
        return reply
      }),
)

/** Steps of ageing are so long that no waiting makes up for one. */
const settings: fc.Arbitrary<Partial<SharedSettings>> = fc
  .record(
    {
      maxDeliveries: fc.constantFrom(1, 2, 5),
      ageing: fc.constantFrom(null, { stepMs: FAR_MS, cap: 65_535 }, { stepMs: FAR_MS, cap: 1 }),
      limits: fc.record({
        maxLength: fc.constantFrom(null, 4, 2),
        maxBytes: fc.constantFrom(null, 12),
        maxPayloadBytes: fc.constantFrom(1_000, 5),
        whenFull: fc.constantFrom('reject' as const, 'dropOldest' as const),
      }),
    },
    { requiredKeys: [] },
  )
  .map((fields) => fields as Partial<SharedSettings>)

const configure = fc.tuple(queue, settings, fc.boolean()).map(
  ([from, changes, propose]): Command =>
    (pair) =>
      pair.ask(`${propose ? 'settings' : 'configure'} ${QUEUES[from]} ${told(changes)}`, from, false, (driver) =>
        propose ? driver.settings(changes) : driver.configure(changes),
      ),
)

/** Set before all else: a bound that is lowered later may be met a little later. */
export const retention: fc.Arbitrary<Command> = fc
  .record({ outcomesMs: fc.constantFrom(FAR_MS, FAR_MS, 0), maxOutcomes: fc.constant(10_000) })
  .map(
    (chosen): Command =>
      async (pair) => {
        for (const [index] of QUEUES.entries()) {
          const what = `configure ${QUEUES[index]} ${told({ retention: chosen })}`
          await pair.ask(what, index, false, (driver) => driver.configure({ retention: chosen }))
        }
      },
  )

export const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 8, arbitrary: enqueue },
  { weight: 7, arbitrary: claim },
  { weight: 8, arbitrary: settle },
  { weight: 2, arbitrary: renew },
  { weight: 2, arbitrary: cancel },
  { weight: 1, arbitrary: purge },
  { weight: 2, arbitrary: requeueDead },
  { weight: 1, arbitrary: purgeDead },
  { weight: 1, arbitrary: pause },
  { weight: 1, arbitrary: sweep },
  { weight: 2, arbitrary: configure },
)
