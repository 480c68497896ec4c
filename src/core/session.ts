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
  /** The outermost request whose call has not returned; 0 for none. */
  private calling = 0
  private readonly open = new Set<number>()

  /** Numbers a request. Told what became of its call by {@link called}. */
  begin(): RequestToken {
    this.seq += 1
    if (this.calling === 0) this.calling = this.seq
    return { session: this.name, seq: this.seq, floor: this.floor() }
  }

  /** The call has returned. One that is not answered yet has its answer kept by the store until {@link end}. */
  called(token: RequestToken, answered: boolean): void {
    if (this.calling === token.seq) this.calling = 0
    if (!answered) this.open.add(token.seq)
  }

  end(token: RequestToken): void {
    this.open.delete(token.seq)
  }

  /** An id for a message that came without one. */
  nextId(): string {
    this.ids += 1
    return `${this.name}-${this.ids}`
  }

  /**
   * A set keeps the order of insertion and numbers only rise, so its first member is the lowest. A call that is still
   * on the stack (a store that answers at once may call back) counts too.
   */
  private floor(): number {
    if (this.open.size > 0) for (const lowest of this.open) return Math.min(lowest, this.calling)
    return this.calling
  }
}
