/**
 * The one timer of a queue: armed at the nearest instant at which a message becomes due, lapses or expires, and at
 * the slow poll that finds what a lost hint did not tell.
 */
import type { Timer } from './clock.js'
import type { Hub } from './hub.js'

/** The most messages of one sweep. */
const SWEEP_LIMIT = 256
/** How often a waiting queue is read without a hint, where hints can be lost. One queue's share of its backend's. */
const POLL_MS = 2_000

/** How many queues of each backend poll: together they stay under one command a second. */
const pollers = new WeakMap<object, Set<DueTimer>>()

export class DueTimer {
  private timer: Timer | undefined
  private dueAt = Number.POSITIVE_INFINITY
  private sweeping = false

  constructor(private readonly hub: Hub) {}

  /** Something becomes due in so many milliseconds; undefined when nothing is known to. */
  expect(ms: number | undefined): void {
    const inMs = Math.min(ms ?? Number.POSITIVE_INFINITY, this.pollMs())
    if (inMs === Number.POSITIVE_INFINITY || !this.hub.busy) return
    const at = this.hub.clock.now() + inMs
    if (this.timer && this.dueAt <= at) return
    this.timer?.stop()
    this.dueAt = at
    this.timer = this.hub.clock.after(inMs, () => this.fire())
  }

  stop(): void {
    this.timer?.stop()
    this.timer = undefined
    this.dueAt = Number.POSITIVE_INFINITY
    pollers.get(this.hub.backend)?.delete(this)
  }

  private fire(): void {
    this.timer = undefined
    this.dueAt = Number.POSITIVE_INFINITY
    this.hub.listen()
    // A claim promotes what is due by itself; without anybody who would claim, a sweep has to.
    if (this.hub.waiting.size > 0) this.hub.wake()
    else this.sweep()
  }

  private sweep(): void {
    if (this.sweeping) return
    this.sweeping = true
    this.hub
      .request(() => this.hub.driver.sweep(SWEEP_LIMIT))
      .then(
        (reply) => {
          this.sweeping = false
          if (reply.moved > 0) this.hub.wake()
          this.expect(reply.moved >= SWEEP_LIMIT ? 0 : reply.nextDueMs)
        },
        (error) => {
          this.sweeping = false
          this.hub.onDown(error)
          this.expect(POLL_MS)
        },
      )
  }

  private pollMs(): number {
    if (this.hub.backend.features.exactHints && !this.hub.deaf) return Number.POSITIVE_INFINITY
    const polling = pollers.get(this.hub.backend) ?? new Set()
    pollers.set(this.hub.backend, polling)
    polling.add(this)
    return POLL_MS * polling.size
  }
}
