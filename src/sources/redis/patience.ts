/**
 * Follows what a connection owes, and notices that it has gone silent: a network can go away without a word, and then
 * an answer would be waited for for ever.
 */
import { BackendUnavailableError } from '../../errors.js'
import type { RedisClient } from './client.js'

/** How long a connection may owe an answer. Doubled each time it is cut in a row, as the server may be slow. */
const PATIENCE_MS = 2_000
const LONGEST_PATIENCE_MS = 30_000
const LOOK_MS = 500
/** A connection that sends slower than this is taken for one that sends nothing. */
const BYTES_PER_MS = 1_000

/** What one node owes. */
interface Line {
  quietSince: number
  /** How to give up each reply, and the bytes that had to be sent for it. */
  readonly owed: Map<(error: Error) => void, number>
}

export class Patience {
  readonly #clientOf: () => RedisClient | undefined
  readonly #cut: () => void
  /** By name: in a cluster one node may be silent while the others are busy. */
  readonly #lines = new Map<string, Line>()
  #patienceMs = PATIENCE_MS
  #watch: NodeJS.Timeout | undefined
  #read = 0

  /** Calls `cut` when an answer has been owed for too long by a connection on which nothing moves. */
  constructor(clientOf: () => RedisClient | undefined, cut: () => void) {
    this.#clientOf = clientOf
    this.#cut = cut
  }

  /** The reply to so many bytes, or a rejection when it is given up. */
  follow<T>(reply: Promise<T>, line = '', bytes = 0): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#owe(line, reject, bytes)
      reply.then(
        (value) => {
          this.#patienceMs = PATIENCE_MS
          this.#paid(line, reject)
          resolve(value)
        },
        (error) => {
          this.#paid(line, reject)
          reject(error)
        },
      )
    })
  }

  /** Gives up all that is owed. */
  giveUp(error: Error): void {
    const owed = [...this.#lines.values()].flatMap((line) => [...line.owed.keys()])
    this.#lines.clear()
    for (const giveUp of owed) giveUp(error)
  }

  stop(): void {
    clearTimeout(this.#watch)
    this.#watch = undefined
  }

  #owe(name: string, giveUp: (error: Error) => void, bytes: number): void {
    let line = this.#lines.get(name)
    if (line === undefined) {
      line = { quietSince: performance.now(), owed: new Map() }
      this.#lines.set(name, line)
    }
    line.owed.set(giveUp, bytes)
    // It is left running when all is answered, and looks then whether anything is owed: far cheaper than one for each.
    if (this.#watch === undefined) this.#lookSoon()
  }

  #paid(name: string, giveUp: (error: Error) => void): void {
    const line = this.#lines.get(name)
    if (!line?.owed.delete(giveUp)) return
    line.quietSince = performance.now()
    if (line.owed.size === 0) this.#lines.delete(name)
  }

  #lookSoon(): void {
    const dueAt = performance.now() + LOOK_MS
    this.#watch = setTimeout(() => {
      this.#watch = undefined
      if (this.#lines.size > 0) this.#look(performance.now() - dueAt)
    }, LOOK_MS)
    this.#watch.unref()
  }

  /** When this comes late, this process was busy itself, and what came meanwhile has not been read yet. */
  #look(lateMs: number): void {
    const now = performance.now()
    const moves = this.#moves()
    let isLost = false
    for (const line of this.#lines.values()) {
      line.quietSince = moves ? now : line.quietSince + Math.max(0, lateMs)
      isLost ||= now - line.quietSince >= this.#patienceMs + sendingMs(line)
    }
    if (isLost) this.#loseIt()
    else this.#lookSoon()
  }

  /** Whether anything has come since the last look: a long answer takes its time. A cluster's sockets are not looked at. */
  #moves(): boolean {
    const bytesRead = this.#clientOf()?.stream?.bytesRead ?? 0
    const moves = bytesRead !== this.#read
    this.#read = bytesRead
    return moves
  }

  #loseIt(): void {
    const error = new BackendUnavailableError(`Redis did not answer for ${this.#patienceMs} ms`)
    this.#patienceMs = Math.min(2 * this.#patienceMs, LONGEST_PATIENCE_MS)
    this.#cut()
    this.giveUp(error)
  }
}

/** How long it may take to send all that was asked; of what has been sent the socket tells nothing of use. */
function sendingMs({ owed }: Line): number {
  let bytes = 0
  for (const each of owed.values()) bytes += each
  return bytes / BYTES_PER_MS
}
