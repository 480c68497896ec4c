/**
 * Claims that are asked for together.
 */
import type { Claim, ClaimReply, ClaimRequest } from '../../driver.js'
import type { Job } from './lane.js'

interface Wish {
  readonly job: Job<ClaimRequest, ClaimReply>
  readonly claims: Claim[]
}

export class Wishes {
  readonly #all: Wish[] = []
  readonly #unwanted: Job<ClaimRequest, ClaimReply>[] = []

  add(job: Job<ClaimRequest, ClaimReply>): void {
    if (job.input.signal?.aborted) this.#unwanted.push(job)
    else this.#all.push({ job, claims: [] })
  }

  /** Some are not wanted any more: they only have to be told whether there is nothing. */
  get someUnwanted(): boolean {
    return this.#unwanted.length > 0
  }

  answerUnwanted(paused: boolean, isEmpty: boolean): void {
    for (const { asked } of this.#unwanted) {
      asked.succeed(isEmpty ? { claims: [], paused } : { claims: [], paused, withdrawn: true })
    }
  }

  get isEmpty(): boolean {
    return this.#all.length === 0
  }

  /** How many claims are asked for, granted or not. */
  get total(): number {
    return this.#all.reduce((sum, { job }) => sum + job.input.max, 0)
  }

  /** How many are asked for and not granted. */
  get wanted(): number {
    return missing(this.#open)
  }

  /** The terms of those that come next. */
  get terms(): ClaimRequest | undefined {
    return this.#open[0]?.job.input
  }

  /** How many are asked for by these terms, so that they can share a page. */
  get alike(): number {
    return missing(this.#alike)
  }

  /** Gives a claim to the first who asked for one by the terms that come next. */
  grant(claim: Claim): void {
    this.#alike[0]?.claims.push(claim)
  }

  /** Answers those who have got all that they asked for. */
  answerFull(): void {
    for (const { job, claims } of this.#all) {
      if (claims.length >= job.input.max) job.asked.succeed({ claims, paused: false })
    }
  }

  /** Answers those who have got something. */
  answerGranted(): void {
    for (const { job, claims } of this.#all) if (claims.length > 0) job.asked.succeed({ claims, paused: false })
  }

  answer(rest: Omit<ClaimReply, 'claims'>): void {
    for (const { job, claims } of this.#all) job.asked.succeed({ claims, ...rest })
  }

  get #open(): Wish[] {
    return this.#all.filter(({ job, claims }) => job.asked.isOpen && claims.length < job.input.max)
  }

  get #alike(): Wish[] {
    const open = this.#open
    const terms = open[0]?.job.input
    return open.filter(({ job: { input } }) => {
      return input.leaseMs === terms?.leaseMs && input.take === terms.take && input.consumer === terms.consumer
    })
  }
}

function missing(wishes: readonly Wish[]): number {
  return wishes.reduce((sum, { job, claims }) => sum + job.input.max - claims.length, 0)
}
