/**
 * Hints for one queue, from one watch of what changes in it.
 *
 * A watch can lose events, be cancelled by a compaction or fall behind, so it is never more than a hint: each time that it
 * begins, all that waits reads again.
 */
import { Observable, type Subscriber } from 'rxjs'
import type { Hint } from '../../driver.js'
import { BackendUnavailableError } from '../../errors.js'
import { type Arrivals, arrivalsOf, decodeArrivals } from './arrivals.js'
import type { News } from './change.js'
import type { EtcdClient, Watch, WatchEvent, WatchListener } from './client.js'
import type { EntryRow } from './entry.js'
import type { Keys } from './keys.js'
import type { Ended } from './outcomes.js'
import { decode } from './record.js'
import { now } from './time.js'

const FIRST_BACKOFF_MS = 50
const LONGEST_BACKOFF_MS = 2_000
/** A watch that has told nothing for so long is asked how far it is, and given up if it does not answer. */
const SIGN_OF_LIFE_MS = 5_000

export interface HintsHost {
  readonly client: () => EtcdClient
  readonly keys: Keys
  /** A lease is gone, whoever held it. */
  onMarkerGone(lease: string): void
  onMetaChanged(event: WatchEvent): void
  onDue(at: number): void
  onArrived(arrivals: Arrivals): void
  /** A message became ready, alone, at this revision. */
  onReady(entry: EntryRow, mod: number): void
}

/** Starts with the first who listens, and ends with the last to leave. */
export class Hints {
  readonly stream: Observable<Hint>
  readonly #host: HintsHost
  readonly #listeners = new Set<Subscriber<Hint>>()
  readonly #watched = new Set<string>()
  #main: Watching | undefined
  #ends: Watching | undefined
  #isUp = false

  constructor(host: HintsHost) {
    this.#host = host
    this.stream = new Observable((listener) => {
      this.#listeners.add(listener)
      if (this.#isUp) listener.next({ kind: 'up' })
      this.#main ??= new Watching(host.client, host.keys.watched, {
        changed: (events) => this.#changed(events),
        up: () => this.#up(),
        down: (error) => this.#down(error),
      })
      return () => this.#leave(listener)
    })
  }

  /** Tells once that this message has ended, or may have. Fulfils when that is sure to be told. */
  async watchEnd(id: string): Promise<void> {
    this.#watched.add(id)
    this.#ends ??= new Watching(this.#host.client, this.#host.keys.ends, {
      changed: (events) => {
        for (const event of events) if (event.type === 'put') this.#ended(this.#endedIn(event))
      },
      up: () => this.#ended([...this.#watched]),
      down: () => {},
    })
    await this.#ends.begun
  }

  /** That it has ended is known. */
  forgetEnd(id: string): void {
    this.#watched.delete(id)
  }

  close(): void {
    this.#main?.end()
    this.#ends?.end()
    for (const listener of [...this.#listeners]) listener.complete()
  }

  tell(hint: Hint): void {
    for (const listener of [...this.#listeners]) listener.next(hint)
  }

  #leave(listener: Subscriber<Hint>): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size > 0) return
    this.#main?.end()
    this.#main = undefined
    this.#ends?.end()
    this.#ends = undefined
    this.#watched.clear()
    this.#isUp = false
  }

  #up(): void {
    this.#isUp = true
    this.tell({ kind: 'up' })
  }

  #down(error: Error): void {
    this.#isUp = false
    this.tell({ kind: 'down', error })
  }

  #changed(events: readonly WatchEvent[]): void {
    let ready = false
    for (const event of events) {
      try {
        ready = this.#noted(event) || ready
      } catch {
        // Of a newer version, or written by hand: whoever looks now is told so.
        ready = true
      }
    }
    if (ready) this.tell({ kind: 'ready' })
  }

  /** Whether it may be worth to look. */
  #noted(event: WatchEvent): boolean {
    const { keys } = this.#host
    if (event.key === keys.arrivals) return this.#arrived(event)
    if (event.key === keys.news) return this.#news(event)
    if (event.key === keys.meta) {
      this.#host.onMetaChanged(event)
      return true
    }
    if (event.type === 'delete' && event.key.startsWith(keys.lives)) {
      this.#host.onMarkerGone(event.key.slice(keys.lives.length))
    }
    return false
  }

  #endedIn({ value }: WatchEvent): readonly string[] {
    try {
      return decode<Ended>(value, 'a page of outcomes').ids
    } catch {
      // It may be any of them: whoever waits looks for himself.
      return [...this.#watched]
    }
  }

  #arrived({ type, value, mod }: WatchEvent): boolean {
    if (type === 'delete') return false
    const arrivals = decodeArrivals(value)
    const { r = 0, d = 0, e } = arrivals
    this.#host.onArrived(arrivalsOf(arrivals, mod))
    if (e) this.#host.onReady(e, mod)
    if (d > 0) this.#due(d)
    return r > 0
  }

  #news({ type, value, mod }: WatchEvent): boolean {
    if (type === 'delete') return false
    const { ready = false, entry, dueAt = 0, cancels = [], ended = [] } = decode<News>(value, 'the news of the queue')
    if (entry) this.#host.onReady(entry, mod)
    if (dueAt > 0) this.#due(dueAt)
    for (const id of cancels) this.tell({ kind: 'cancel', id })
    this.#ended(ended)
    return ready
  }

  #due(at: number): void {
    this.#host.onDue(at)
    this.tell({ kind: 'due', inMs: Math.max(0, at - now()) })
  }

  #ended(ids: readonly string[]): void {
    for (const id of ids) if (this.#watched.delete(id)) this.tell({ kind: 'outcome', id })
  }
}

interface Watcher {
  changed(events: readonly WatchEvent[]): void
  up(): void
  down(error: Error): void
}

/** A watch that is begun again whenever it ends. */
class Watching {
  /** Fulfils when it was begun for the first time, or cannot be for now. */
  readonly begun: Promise<void>
  readonly #client: () => EtcdClient
  readonly #prefix: string
  readonly #watcher: Watcher
  #begin = () => {}
  #watch: Watch | undefined
  #isOver = false
  #failures = 0
  #timer: NodeJS.Timeout | undefined

  constructor(client: () => EtcdClient, prefix: string, watcher: Watcher) {
    this.#client = client
    this.#prefix = prefix
    this.#watcher = watcher
    this.begun = new Promise((resolve) => {
      this.#begin = resolve
    })
    void this.#open()
  }

  end(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#watch?.end()
    this.#begin()
  }

  async #open(): Promise<void> {
    const listener = this.#listener()
    this.#listen(() => listener.broken(new BackendUnavailableError('the watch of the queue does not begin')))
    try {
      const watch = await this.#client().watch(this.#prefix, listener)
      if (this.#isOver || listener.isOver()) watch.end()
      else this.#watch = watch
    } catch (error) {
      listener.broken(error instanceof Error ? error : new BackendUnavailableError(String(error)))
    }
  }

  #listener(): WatchListener & { isOver(): boolean } {
    let over = false
    const alive = () => {
      if (!over && !this.#isOver) this.#listen(() => this.#askForSign(listener))
    }
    const listener = {
      isOver: () => over,
      started: () => {
        if (over || this.#isOver) return
        this.#failures = 0
        alive()
        this.#begin()
        this.#watcher.up()
      },
      changed: (events: readonly WatchEvent[]) => {
        if (over || this.#isOver) return
        alive()
        this.#watcher.changed(events)
      },
      progressed: alive,
      broken: (error: Error) => {
        if (over || this.#isOver) return
        over = true
        this.#watch?.end()
        this.#watch = undefined
        this.#begin()
        this.#watcher.down(error)
        this.#again()
      },
    }
    return listener
  }

  #again(): void {
    const fullMs = Math.min(FIRST_BACKOFF_MS * 2 ** this.#failures, LONGEST_BACKOFF_MS)
    this.#failures += 1
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => void this.#open(), fullMs * (0.5 + Math.random() / 2))
    this.#timer.unref()
  }

  #askForSign(listener: WatchListener): void {
    this.#watch?.progress()
    this.#listen(() => listener.broken(new BackendUnavailableError('the watch of the queue is silent')))
  }

  #listen(silent: () => void): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(silent, SIGN_OF_LIFE_MS)
    this.#timer.unref()
  }
}
