import type { Reply, RequestToken } from '../../driver.js'
import { refused, tokenExpired } from '../../driver.js'
import { Fifo } from './fifo.js'

/** A session is silent when it was not heard of for this many of the longest leases. */
const LEASES_REMEMBERED = 2

interface Answer {
  readonly seq: number
  readonly reply: Reply<unknown>
}

/** The answers that one caller may still ask for again. */
export class Session {
  heardAt = 0
  #floor = 0
  #highest = -1
  #answers = new Fifo<Answer>()

  constructor(readonly name: string) {}

  /** The first answer to a request that is a repeat, a refusal if that is forgotten; `undefined` for a new request. */
  recall(token: RequestToken): Reply<never> | undefined {
    if (token.floor > this.#floor) this.#raise(token.floor)
    if (token.seq < this.#floor) return refused(tokenExpired(token))
    if (token.seq > this.#highest) return undefined
    return this.#answers.findLast((answer) => answer.seq === token.seq)?.reply as Reply<never> | undefined
  }

  remember(seq: number, reply: Reply<unknown>): void {
    if (seq > this.#highest) this.#highest = seq
    this.#answers.push({ seq, reply })
  }

  /** Forgets the answers but not that they were given, so that a late repeat is refused and not run again. */
  fallSilent(): void {
    if (this.#answers.size === 0) return
    this.#floor = Math.max(this.#floor, this.#highest + 1)
    this.#answers = new Fifo()
  }

  #raise(floor: number): void {
    this.#floor = floor
    for (let oldest = this.#answers.first; oldest !== undefined && oldest.seq < floor; ) {
      this.#answers.shift()
      oldest = this.#answers.first
    }
  }
}

/** The sessions of one store. */
export class SessionBook {
  readonly #byName = new Map<string, Session>()
  #all: Session[] = []
  #cursor = 0
  #longestLeaseMs = 30_000

  /** Takes note of a lease that was asked for: answers are kept for two of the longest. */
  noteLease(leaseMs: number): void {
    if (leaseMs > this.#longestLeaseMs) this.#longestLeaseMs = leaseMs
  }

  /** The session of a name, made now if there is none. */
  open(name: string): Session {
    let session = this.#byName.get(name)
    if (session === undefined) {
      session = new Session(name)
      this.#byName.set(name, session)
      this.#all.push(session)
    }
    return session
  }

  close(names: ReadonlySet<string>): void {
    for (const name of names) this.#byName.delete(name)
    this.#all = this.#all.filter((session) => !names.has(session.name))
  }

  /** Looks at one session, a different one each time, and drops its answers if it has been silent for long. */
  inspectOne(now: number): void {
    if (this.#cursor >= this.#all.length) this.#cursor = 0
    const session = this.#all[this.#cursor++]
    if (session === undefined) return
    if (now - session.heardAt > LEASES_REMEMBERED * this.#longestLeaseMs) session.fallSilent()
  }
}
