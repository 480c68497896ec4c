/**
 * The session of an open queue object: it numbers requests, so that the store can tell a repeat from a new one, and
 * tells the store which answers have arrived, so that it can forget them.
 */
import { randomBytes } from 'node:crypto'
import type { RequestToken } from '../driver.js'

export class Session {
  readonly name = randomBytes(9).toString('base64url')
  private seq = 0
  private ids = 0
  private readonly open = new Set<number>()

  /** Numbers a request. It counts as unanswered until {@link end}. */
  begin(): RequestToken {
    this.seq += 1
    this.open.add(this.seq)
    return { session: this.name, seq: this.seq, floor: this.floor() }
  }

  end(token: RequestToken): void {
    this.open.delete(token.seq)
  }

  /** An id for a message that came without one. */
  nextId(): string {
    this.ids += 1
    return `${this.name}-${this.ids.toString(36)}`
  }

  /** A set keeps the order of insertion and numbers only rise, so its first member is the lowest. */
  private floor(): number {
    for (const lowest of this.open) return lowest
    return this.seq
  }
}
