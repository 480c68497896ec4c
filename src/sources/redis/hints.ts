/**
 * Listens to what the scripts publish, over one connection for all queues of a backend.
 *
 * A publication can be lost while that connection is made anew, so whoever waits reads again when it is back; the
 * engine polls slowly besides. A connection that has gone silent is found by asking it for a sign of life.
 */
import { Observable, Subject } from 'rxjs'
import type { Hint } from '../../driver.js'
import type { RedisClient } from './client.js'
import { asBackendError } from './errors.js'
import { backoff } from './target.js'

/** How often a sign of life is asked for; one that has not come by the next time never will. */
const PULSE_MS = 5_000

export class Hints {
  readonly #connect: () => Promise<RedisClient>
  readonly #channels = new Map<string, Subject<Hint>>()
  #subscriber: RedisClient | undefined
  #connecting = false
  #down = false
  #failures = 0
  #retry: NodeJS.Timeout | undefined
  #pulse: NodeJS.Timeout | undefined
  #awaitsSign = false

  constructor(connect: () => Promise<RedisClient>) {
    this.#connect = connect
  }

  /** The hints of a channel, from the first who listens to the last. */
  of(channel: string): Observable<Hint> {
    return new Observable((observer) => {
      const hints = this.#hintsOf(channel)
      const subscription = hints.subscribe(observer)
      return () => {
        subscription.unsubscribe()
        this.#rest(channel, hints)
      }
    })
  }

  /** Lets go of the connection. */
  close(): void {
    clearTimeout(this.#retry)
    clearInterval(this.#pulse)
    this.#retry = undefined
    this.#pulse = undefined
    this.#down = false
    this.#failures = 0
    const subscriber = this.#subscriber
    this.#subscriber = undefined
    subscriber?.disconnect()
  }

  #hintsOf(channel: string): Subject<Hint> {
    let hints = this.#channels.get(channel)
    if (hints === undefined) {
      hints = new Subject()
      this.#channels.set(channel, hints)
      if (this.#subscriber?.status === 'ready') this.#subscribe(this.#subscriber, [channel])
      else if (this.#subscriber === undefined && this.#retry === undefined) void this.#open()
    }
    return hints
  }

  #rest(channel: string, hints: Subject<Hint>): void {
    if (hints.observed) return
    this.#channels.delete(channel)
    if (this.#channels.size === 0) this.close()
    else if (this.#subscriber?.status === 'ready') this.#subscriber.unsubscribe(channel).catch(() => {})
  }

  async #open(): Promise<void> {
    if (this.#connecting) return
    this.#connecting = true
    try {
      const subscriber = await this.#connect()
      if (this.#channels.size > 0) this.#follow(subscriber)
      else subscriber.disconnect()
    } catch (error) {
      this.#lose(error)
    } finally {
      this.#connecting = false
    }
  }

  #follow(subscriber: RedisClient): void {
    this.#subscriber = subscriber
    let failure: unknown = new Error('the connection for hints was closed')
    subscriber.on('message', (channel, text) => this.#tell(String(channel), String(text)))
    subscriber.on('ready', () => this.#subscribe(subscriber, [...this.#channels.keys()]))
    subscriber.on('error', (error) => {
      failure = error
    })
    subscriber.on('end', () => {
      if (this.#subscriber === subscriber) this.#lose(failure)
    })
    this.#awaitsSign = false
    clearInterval(this.#pulse)
    this.#pulse = setInterval(() => this.#feel(subscriber), PULSE_MS)
    this.#pulse.unref()
  }

  /** Whoever waits reads again once it is subscribed: what came before was not heard. */
  #subscribe(subscriber: RedisClient, channels: readonly string[]): void {
    subscriber.subscribe(...channels).then(
      () => this.#heard(channels),
      () => subscriber.disconnect(),
    )
  }

  #heard(channels: readonly string[]): void {
    this.#down = false
    this.#failures = 0
    for (const channel of channels) this.#channels.get(channel)?.next({ kind: 'up' })
  }

  #feel(subscriber: RedisClient): void {
    if (this.#awaitsSign || subscriber.status !== 'ready') {
      subscriber.disconnect()
      return
    }
    this.#awaitsSign = true
    const alive = () => {
      this.#awaitsSign = false
    }
    subscriber.callBuffer('PING').then(alive, () => subscriber.disconnect())
  }

  #lose(error: unknown): void {
    clearInterval(this.#pulse)
    this.#subscriber = undefined
    if (this.#channels.size === 0) return
    this.#failures += 1
    this.#retry = setTimeout(() => {
      this.#retry = undefined
      void this.#open()
    }, backoff(this.#failures))
    if (this.#down) return
    this.#down = true
    for (const hints of [...this.#channels.values()]) hints.next({ kind: 'down', error: asBackendError(error) })
  }

  #tell(channel: string, text: string): void {
    const hints = this.#channels.get(channel)
    const [kind = '', ...rest] = text.split(':')
    const what = rest.join(':')
    if (kind === 'ready') hints?.next({ kind })
    else if (kind === 'due') hints?.next({ kind, inMs: Number(what) })
    else if (kind === 'cancel' || kind === 'outcome') hints?.next({ kind, id: what })
  }
}
