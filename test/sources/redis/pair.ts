import type { Backend, Claim, QueueDriver, RequestToken, StoredMessage } from '../../../src/driver.js'
import { memoryBackend } from '../../../src/sources/memory/index.js'

/** Queues that both backends have; messages go between them. */
export const QUEUES = ['a', 'b'] as const
export const IDS = Array.from({ length: 10 }, (_, index) => `m${index}`)

type Verb = (driver: QueueDriver, side: Side, token: RequestToken) => PromiseLike<unknown>

/** One of the two backends, with its open queues and what was claimed there. */
export class Side {
  readonly drivers: readonly QueueDriver[]
  readonly claims: Claim[][] = QUEUES.map(() => [])
  /** What the last claim or sweep said about what is due next. */
  nextDueMs: number | undefined

  constructor(backend: Backend) {
    this.drivers = QUEUES.map((name) => {
      const driver: QueueDriver = backend.open(name, { close: () => driver.close() })
      return driver
    })
  }
}

/** How an answer is compared: without instants, bytes as text, errors by what they say. */
const MINUTE_MS = 60_000
const INSTANTS = new Set(['enqueuedAt', 'leaseExpiresAt', 'dueAt', 'deadAt', 'oldestReadyAgeMs', 'nextDueMs'])

function comparable(name: string, value: unknown): unknown {
  if (INSTANTS.has(name)) return undefined
  if (value instanceof Uint8Array) return `bytes:${Buffer.from(value).toString('hex')}`
  if (value instanceof Error) return `${value.name}: ${value.message}`
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)))
}

function shown(value: unknown): string {
  // A buffer would have become text of its own before the replacer sees it.
  return JSON.stringify(value, function (this: Record<string, unknown>, name) {
    return comparable(name, this[name])
  })
}

async function answerOf(reply: PromiseLike<unknown>): Promise<string> {
  try {
    return shown(await reply)
  } catch (error) {
    return shown(error)
  }
}

/** The memory backend and another one, side by side: whatever is asked goes to both, and all that shows is compared. */
export class Pair {
  readonly sides: readonly [Side, Side]
  readonly log: string[] = []
  #seq = 0

  constructor(
    readonly memory: Backend,
    readonly other: Backend,
  ) {
    this.sides = [new Side(memory), new Side(other)]
  }

  static beside(other: Backend): Pair {
    return new Pair(memoryBackend(), other)
  }

  /** Asks both, the second time with the same token if it is to be repeated, and compares. */
  async ask(what: string, queue: number, repeat: boolean, verb: Verb): Promise<void> {
    this.log.push(`${what}${repeat ? ', asked again' : ''}`)
    this.#seq += 1
    const token = { session: 'both', seq: this.#seq, floor: this.#seq }
    const [memory, other] = await this.#both(queue, token, verb)
    this.#compare(memory, other)
    this.#compareDue()
    if (repeat) this.#compare(memory, (await this.#both(queue, token, verb))[1])
    const [expected, found] = await Promise.all(this.sides.map(lookAround))
    this.#compare(expected as string, found as string)
  }

  #both(queue: number, token: RequestToken, verb: Verb): Promise<string[]> {
    return Promise.all(
      this.sides.map((side) => {
        const driver = side.drivers[queue] as QueueDriver
        return answerOf(verb(driver, side, token))
      }),
    )
  }

  /** One may say that something is due earlier than it is, and then finds nothing; it may not say so too late. */
  #compareDue(): void {
    const [memory, other] = this.sides.map(({ nextDueMs }) => nextDueMs)
    if (memory === undefined || (other !== undefined && other <= memory + MINUTE_MS)) return
    throw new Error(`after\n  ${this.log.join('\n  ')}\ndue in ${memory} ms, the other says ${other}`)
  }

  #compare(memory: string | undefined, other: string | undefined): void {
    if (memory === other) return
    throw new Error(`after\n  ${this.log.join('\n  ')}\nmemory: ${memory}\nother:  ${other}`)
  }
}

/** All that can be seen of both queues. */
async function lookAround({ drivers }: Side): Promise<string> {
  const seen = await Promise.all(
    drivers.map(async (driver) => {
      const [stats, ready, delayed, claimed, dead, ...outcomes] = await Promise.all([
        driver.stats(),
        listed(driver, 'ready', 3),
        listed(driver, 'delayed', 100),
        listed(driver, 'claimed', 100),
        buried(driver, 3),
        ...IDS.map((id) => driver.outcome(id, false)),
      ])
      // Of these two the order is not promised.
      return { stats, ready, delayed: sorted(delayed), claimed: sorted(claimed), dead, outcomes }
    }),
  )
  return shown(seen)
}

function sorted(items: readonly StoredMessage[]): StoredMessage[] {
  return items.toSorted((one, other) => (one.id < other.id ? -1 : 1))
}

async function listed(driver: QueueDriver, state: StoredMessage['state'], limit: number): Promise<StoredMessage[]> {
  const items: StoredMessage[] = []
  let after: string | undefined
  do {
    const page = await driver.list(state, { limit, ...(after !== undefined && { after }) })
    items.push(...page.items)
    after = page.next
  } while (after !== undefined)
  return items
}

async function buried(driver: QueueDriver, limit: number): Promise<unknown[]> {
  const items: unknown[] = []
  let after: string | undefined
  do {
    const page = await driver.deadLetters({ limit, ...(after !== undefined && { after }) })
    items.push(...page.items)
    after = page.next
  } while (after !== undefined)
  return items
}
