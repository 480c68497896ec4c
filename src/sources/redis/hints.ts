/**
 * Listens to what the scripts publish, over one connection for all queues of a backend.
 *
 * A publication can be lost while that is made anew, so whoever waits is told to read again when it is back, and the
 * engine polls slowly besides.
 */
import { Observable, Subject } from 'rxjs'
import type { Hint } from '../../driver.js'
import type { RedisClient } from './client.js'
import { asBackendError } from './errors.js'

export class Hints {
  readonly #connect: () => RedisClient
  readonly #channels = new Map<string, Subject<Hint>>()
  #subscriber: RedisClient | undefined
  #down = false

  constructor(connect: () => RedisClient) {
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

  close(): void {
    this.#subscriber?.disconnect()
    this.#subscriber = undefined
  }

  #hintsOf(channel: string): Subject<Hint> {
    let hints = this.#channels.get(channel)
    if (hints === undefined) {
      hints = new Subject()
      this.#channels.set(channel, hints)
      this.#subscribe(channel)
    }
    return hints
  }

  /** Reads again once it is subscribed: what came before was not heard. */
  #subscribe(channel: string): void {
    const subscriber = this.#subscribed()
    subscriber.subscribe(channel).then(
      () => this.#channels.get(channel)?.next({ kind: 'ready' }),
      // The connection goes on by itself, and subscribes again then.
      (error) => this.#fail(error),
    )
  }

  #rest(channel: string, hints: Subject<Hint>): void {
    if (hints.observed) return
    this.#channels.delete(channel)
    if (this.#channels.size === 0) this.close()
    else this.#subscriber?.unsubscribe(channel).catch(() => {})
  }

  #subscribed(): RedisClient {
    if (this.#subscriber) return this.#subscriber
    const subscriber = this.#connect()
    this.#subscriber = subscriber
    subscriber.on('message', (channel: string, text: string) => this.#tell(channel, text))
    subscriber.on('ready', () => this.#up())
    subscriber.on('close', () => this.#fail(new Error('the connection for hints was closed')))
    // Without a listener the client would write it to the console; `close` follows it.
    subscriber.on('error', () => {})
    return subscriber
  }

  #tell(channel: string, text: string): void {
    const [kind, ...rest] = text.split(':')
    const id = rest.join(':')
    const hints = this.#channels.get(channel)
    if (kind === 'ready') hints?.next({ kind })
    else if (kind === 'cancel' || kind === 'outcome') hints?.next({ kind, id })
  }

  #fail(error: unknown): void {
    if (this.#down || this.#subscriber === undefined) return
    this.#down = true
    this.#tellAll({ kind: 'down', error: asBackendError(error) })
  }

  /** The client has subscribed again by now, or is about to; what was published meanwhile was not heard. */
  #up(): void {
    if (!this.#down) return
    this.#down = false
    this.#tellAll({ kind: 'up' })
  }

  #tellAll(hint: Hint): void {
    for (const hints of [...this.#channels.values()]) hints.next(hint)
  }
}
