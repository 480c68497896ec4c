/**
 * The time of this process. etcd has no clock that it would tell, so delays and times to live lean on those of clients.
 *
 * It follows the wall clock, but only as fast as a clock drifts: somebody who sets that by an hour shifts no delay.
 */

/** How much faster or slower than the monotonic clock it runs at most. */
const MOST_DRIFT = 0.001

export class SlewedClock {
  readonly #monotonic: () => number
  readonly #wall: () => number
  #offset: number
  #readAt: number

  constructor(monotonic: () => number, wall: () => number) {
    this.#monotonic = monotonic
    this.#wall = wall
    this.#readAt = monotonic()
    this.#offset = wall() - this.#readAt
  }

  /** Epoch milliseconds. */
  now(): number {
    const at = this.#monotonic()
    const most = (at - this.#readAt) * MOST_DRIFT
    const wanted = this.#wall() - at - this.#offset
    this.#offset += Math.max(-most, Math.min(most, wanted))
    this.#readAt = at
    return Math.floor(at + this.#offset)
  }
}

const clock = new SlewedClock(
  () => performance.now(),
  () => Date.now(),
)

/** Epoch milliseconds, by the clock of this process. */
export function now(): number {
  return clock.now()
}
