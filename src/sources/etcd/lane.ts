/**
 * The order in which an opened queue does what it is asked for: one thing at a time. What goes together and was asked for
 * meanwhile is done together.
 */
import type { RequestToken } from '../../driver.js'
import { BackendUnavailableError } from '../../errors.js'
import { Asked, type TokenBook } from './tokens.js'

/** One thing to do. */
export interface Job<I = unknown, O = unknown> {
  readonly kind: string
  readonly input: I
  readonly asked: Asked<O>
  readonly token: RequestToken | undefined
}

/** Does jobs of one kind together, at least the first of them, and answers those that it has done. */
export type Work = (jobs: readonly Job[], failed: Failed) => Promise<void>

/** Says that a job could not be done; where it may be later, it can be asked for again. */
export type Failed = (job: object, error: unknown) => void

/** What may be done together with the first of a kind, though it was asked for later. */
export interface Together {
  readonly takes: readonly string[]
  /** So many at most. */
  readonly most: number
  /** What it may not overtake. */
  readonly until: (kind: string) => boolean
}

const ALONE: Together = { takes: [], most: 1, until: () => true }

export class Lane {
  readonly #works: Readonly<Record<string, Work>>
  readonly #together: Readonly<Record<string, Together>>
  readonly #book: TokenBook
  #waiting: Job[] = []
  #running: Job[] = []
  #busy = false
  #idle: (() => void)[] = []

  constructor(works: Readonly<Record<string, Work>>, together: Readonly<Record<string, Together>>, book: TokenBook) {
    this.#works = works
    this.#together = together
    this.#book = book
  }

  /** Adds something to do. What has a token and was asked for before is not done again. */
  ask<I, O>(kind: string, input: I, token?: RequestToken): Promise<O> {
    try {
      const known = token && this.#book.recall(token)
      if (known) return known.answer()
    } catch (error) {
      return Promise.reject(error)
    }
    const asked = new Asked<O>()
    if (token) this.#book.remember(token, asked as unknown as Asked<never>)
    this.#waiting.push({ kind, input, asked, token } as Job)
    const answer = asked.answer()
    this.#start()
    return answer
  }

  /** What was sent is not answered: those who wait are told, and what was not begun is put off until it is asked for again. */
  trouble(error: Error): void {
    for (const { asked } of this.#running) asked.trouble(error)
    for (const job of this.#waiting.splice(0)) this.#drop(job, error)
  }

  /** Fulfils when nothing is under way. */
  idle(): Promise<void> {
    if (!this.#busy) return Promise.resolve()
    return new Promise((resolve) => this.#idle.push(resolve))
  }

  /** Refuses all that is not done. */
  close(error: Error): void {
    for (const job of [...this.#running, ...this.#waiting.splice(0)]) job.asked.fail(error)
  }

  #start(): void {
    if (this.#busy) return
    this.#busy = true
    // What is asked for in the same turn goes along.
    queueMicrotask(() => void this.#run())
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) await this.#next()
    this.#busy = false
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  async #next(): Promise<void> {
    this.#running = this.#takeTogether()
    const { kind } = this.#running[0] as Job
    try {
      await this.#works[kind]?.(this.#running, (job, error) => this.#end(job as Job, error))
    } catch (error) {
      for (const job of this.#running) this.#end(job, error)
    }
    // What there was no room for is the next to be done.
    this.#putFirst(this.#running.filter(({ asked }) => asked.isOpen))
    this.#running = []
  }

  /** The first, and what goes with it of what was asked for after it. */
  #takeTogether(): Job[] {
    const { kind } = this.#waiting[0] as Job
    const { takes, most, until } = this.#together[kind] ?? ALONE
    const taken: Job[] = []
    const passed: Job[] = []
    let at = 0
    for (; at < this.#waiting.length && taken.length < most; at += 1) {
      const job = this.#waiting[at] as Job
      if (at > 0 && until(job.kind)) break
      if (at === 0 || takes.includes(job.kind)) taken.push(job)
      else passed.push(job)
    }
    this.#waiting.splice(0, at)
    this.#putFirst(passed)
    return taken
  }

  /** Copies all that waits only where there is something to put before it: a burst is long. */
  #putFirst(jobs: readonly Job[]): void {
    if (jobs.length > 0) this.#waiting = [...jobs, ...this.#waiting]
  }

  #end(job: Job, error: unknown): void {
    if (error instanceof BackendUnavailableError) this.#drop(job, error)
    else job.asked.fail(error)
  }

  #drop({ asked, token }: Job, error: unknown): void {
    if (!asked.isOpen) return
    if (token) this.#book.forget(token)
    asked.fail(error)
  }
}
