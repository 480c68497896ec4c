/**
 * Turns of a queue that lies in two databases of one server. In one the scripts carry them out as they are, in the other
 * without what they have for plain turns. What is answered and what is stored must be the same.
 */
import { readFileSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { NEVER } from 'rxjs'
import { expect } from 'vitest'
import type { Claim, QueueDriver, RequestToken } from '../../../src/driver.js'
import { RedisDriver } from '../../../src/sources/redis/driver.js'
import { answersKeyOf } from '../../../src/sources/redis/keys.js'
import { Script } from '../../../src/sources/redis/script.js'
import { type ScriptName, SOURCES } from '../../../src/sources/redis/source.js'
import { type Call, Turns } from '../../../src/sources/redis/turn.js'
import { stateOf } from './harness.js'

const QUEUE = 'q'
const PREFIX = `millrace:{${QUEUE}}`
const SESSIONS = ['s1', 's2'] as const
const START = 1_790_000_000_000
const HOUR_MS = 3_600_000
const COMPARED_EVERY = 6

export type PlainName = 'enqueue' | 'consume'
type Scripts = Readonly<Record<ScriptName, Script>>

/** The side with plain turns, and the one without. */
export type Sides = readonly { readonly redis: Redis; readonly scripts: Scripts }[]

export function sidesOn(url: string): Sides {
  return [scriptsWith(counted), scriptsWith(() => '')].map((scripts, db) => ({
    redis: new Redis(url, { db }),
    scripts,
  }))
}

function scriptsWith(partFor: (plain: string, name: PlainName) => string): Scripts {
  const script = (name: PlainName) => rigged(SOURCES[name].replace(plainPart(name), (plain) => partFor(plain, name)))
  return { enqueue: script('enqueue'), consume: script('consume'), administer: rigged(SOURCES.administer) }
}

function plainPart(name: PlainName): string {
  return readFileSync(new URL(`../../../src/sources/redis/lua/plain-${name}.lua`, import.meta.url), 'utf8')
}

function counted(plain: string, name: PlainName): string {
  return plain.replace('if replies then', `if replies then redis.call('HINCRBY', 'plain', '${name}', 1)`)
}

/** With a clock that is set from here, and with what is published in a list. */
function rigged(source: string): Script {
  const timed = source.replaceAll("redis.call('TIME')", "redis.call('LRANGE', 'clock', 0, 1)")
  return new Script(timed.replaceAll("redis.call('PUBLISH', ", "redis.call('RPUSH', 'told:' .. "))
}

export type Ask = (driver: QueueDriver, token: RequestToken) => PromiseLike<unknown>
type Request = readonly [Ask, RequestToken]

/** Whether a request comes after the last one, leaves one out, or is one that was left out. */
export type Order = 'next' | 'leave' | 'left'

class Caller {
  readonly #left: number[] = []
  #seq = 0
  #floor = 0

  constructor(readonly session: string) {}

  /** For a request that confirms all answers but the last so many. */
  token(order: Order, unconfirmed: number): RequestToken {
    if (order === 'leave') this.#left.push(++this.#seq)
    const seq = (order === 'left' && this.#left.shift()) || ++this.#seq
    this.#floor = Math.max(this.#floor, this.#seq - unconfirmed)
    return { session: this.session, seq, floor: this.#floor }
  }
}

export class Course {
  /** Those that nobody has settled yet. */
  readonly claims: Claim[] = []
  readonly log: string[] = []
  readonly #sides: Sides
  readonly #driver: QueueDriver
  readonly #callers = [new Caller(SESSIONS[0]), new Caller(SESSIONS[1])] as const
  readonly #turns: (readonly Request[])[] = []
  readonly #replies: unknown[][] = []
  #underWay = 0
  #now = START

  constructor(sides: Sides) {
    this.#sides = sides
    const turns = new Turns(PREFIX, this.#call, () => QUEUE)
    this.#driver = new RedisDriver(QUEUE, {
      usable: true,
      turnsOf: () => turns,
      prefixOf: () => PREFIX,
      queueOf: () => QUEUE,
      canReach: () => true,
      hintsOf: () => NEVER,
      letGo: () => Promise.resolve(),
    })
  }

  /** Deletes what an earlier course has left. */
  async begin(): Promise<void> {
    await this.#both(({ redis }) => redis.flushdb())
    await this.#setClock()
  }

  /** Less than nothing is a clock that somebody has set. */
  async wait(ms: number): Promise<void> {
    if (ms === 0) return
    this.#now += ms
    this.log.push(`${ms} ms`)
    await this.#setClock()
  }

  async deleteIn(suffix: string, field?: string): Promise<void> {
    const key = `${PREFIX}:${suffix}`
    this.log.push(`deletes ${key} ${field ?? ''}`)
    await this.#both(({ redis }) => (field === undefined ? redis.del(key) : redis.hdel(key, field)))
  }

  token(from: 0 | 1, order: Order, unconfirmed: number): RequestToken {
    return this.#callers[from].token(order, unconfirmed)
  }

  /** Asks for all of it at once. */
  async turn(asked: readonly Request[]): Promise<void> {
    const requests = asked.map(([ask, token]): Request => [ask, confirmingNone(asked, token)])
    this.#turns.push(requests)
    await Promise.allSettled(requests.map(([ask, token]) => ask(this.#driver, token)))
    // A change of settings asks for more by itself.
    do await setImmediate()
    while (this.#underWay > 0)
    for (const [plain, modules] of this.#replies.splice(0)) expect(plain).toEqual(modules)
    if (this.#turns.length % COMPARED_EVERY === 0) await this.compare()
  }

  /** An earlier turn once more. */
  async again(back: number): Promise<void> {
    await this.turn(this.#turns.at(-1 - back) ?? [])
  }

  /** Compares all that is stored. */
  async compare(): Promise<void> {
    const [plain, modules] = await this.#both(({ redis }) => stored(redis))
    expect(plain).toEqual(modules)
    for (const session of SESSIONS) {
      const [plain, modules] = await this.#both(({ redis }) => answersIn(redis, answersKeyOf(PREFIX, session)))
      // Of many, plain turns leave those alone for a while that are below the floor.
      const floor = modules !== undefined && plain?.areMany ? modules.floor : 0
      expect(from(floor, plain)).toEqual(from(floor, modules))
    }
  }

  /** How many turns were plain. */
  async plainTurns(name: PlainName): Promise<number> {
    return Number(await this.#sides[0]?.redis.hget('plain', name))
  }

  readonly #call: Call = async (script, keys, args) => {
    this.log.push(`${script} ${args.join(' ').slice(0, 500)}`)
    this.#underWay += 1
    try {
      const replies = await this.#both(({ redis, scripts }) => scripts[script].run(redis, keys, args))
      this.#replies.push(replies.map(readable))
      return replies[0] as unknown[]
    } finally {
      this.#underWay -= 1
    }
  }

  #setClock() {
    const clock = [Math.floor(this.#now / 1_000), (this.#now % 1_000) * 1_000]
    return this.#both(({ redis }) =>
      redis
        .multi()
        .del('clock')
        .rpush('clock', ...clock)
        .exec(),
    )
  }

  #both<T>(act: (side: Sides[number]) => Promise<T>): Promise<T[]> {
    return Promise.all(this.#sides.map(act))
  }
}

/** Nobody confirms the answer to a request that is sent in the same turn. */
function confirmingNone(requests: readonly Request[], { session, seq, floor }: RequestToken): RequestToken {
  const seqs = requests.flatMap(([, each]) => (each.session === session ? each.seq : []))
  return { session, seq, floor: Math.min(floor, ...seqs) }
}

function readable(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return value.toString('latin1')
  return Array.isArray(value) ? value.map(readable) : value
}

async function stored(redis: Redis): Promise<Record<string, unknown>> {
  const apart = new Set(['plain', ...SESSIONS.map((session) => answersKeyOf(PREFIX, session))])
  const keys = (await redis.keys('*')).filter((key) => !apart.has(key))
  return Object.fromEntries(await Promise.all(keys.map(async (key) => [key, await storedIn(redis, key)])))
}

async function storedIn(redis: Redis, key: string): Promise<unknown> {
  const type = await redis.type(key)
  if (type === 'list') return readable(await redis.lrangeBuffer(key, 0, -1))
  if (type === 'zset') return readable(await redis.zrangeBuffer(key, 0, -1, 'WITHSCORES'))
  expect(type).toBe('hash')
  const { state, ...fields } = await redis.hgetallBuffer(key)
  const entries = Object.entries(fields).flatMap(([name, value]) => comparable(key, name, value))
  return { ...Object.fromEntries(entries), ...(state && { state: await stateOf(redis, QUEUE) }) }
}

const DONE = 4
const DELIVERIES = 7

/** It matters neither how often a message was delivered that is done, nor whether a total of 0 is written. */
function comparable(key: string, name: string, value: Buffer): [name: string, value: unknown][] {
  if (key === `${PREFIX}:m` && value[0] === DONE) value.writeUInt32BE(0, DELIVERIES)
  return key === `${PREFIX}:q` && String(value) === '0' ? [] : [[name, readable(value)]]
}

const HEADER_BYTES = 24
const MANY_BYTES = 4_096

interface Answers {
  readonly floor: number
  readonly highest: number
  readonly answers: (readonly [seq: number, answer: string])[]
  readonly keptHours: number
  readonly areMany: boolean
}

/** As lua/answers.lua packs them. */
async function answersIn(redis: Redis, key: string): Promise<Answers | undefined> {
  const [packed, keptMs] = await Promise.all([redis.getBuffer(key), redis.pttl(key)])
  if (packed === null) return undefined
  const answers: Answers['answers'] = []
  for (let at = HEADER_BYTES, end = at; at < packed.length; at = end) {
    end = at + 12 + packed.readUInt32BE(at + 8)
    answers.push([packed.readDoubleBE(at), packed.toString('hex', at + 12, end)])
  }
  answers.sort(([one], [other]) => one - other)
  const [floor, highest] = [packed.readDoubleBE(0), packed.readDoubleBE(8)]
  return { floor, highest, answers, keptHours: Math.round(keptMs / HOUR_MS), areMany: packed.length >= MANY_BYTES }
}

function from(floor: number, kept: Answers | undefined): Omit<Answers, 'areMany'> | undefined {
  if (kept === undefined) return undefined
  const { areMany: _, ...all } = kept
  return { ...all, floor: Math.max(floor, all.floor), answers: all.answers.filter(([seq]) => seq >= floor) }
}
