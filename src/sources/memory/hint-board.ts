import { Subject } from 'rxjs'
import type { Hint } from '../../driver.js'

const READY: Hint = { kind: 'ready' }

/**
 * Gathers what a verb has to tell until the verb is done, then tells it.
 *
 * A subscriber may call any verb from a hint, so nothing is told while the queue is being changed. However many
 * messages a verb made ready, it says so once.
 */
export class HintBoard {
  readonly stream = new Subject<Hint>()
  #ready = false
  #others: Hint[] = []

  ready(): void {
    this.#ready = true
  }

  add(hint: Hint): void {
    if (this.stream.observed) this.#others.push(hint)
  }

  /** Tells what was gathered. */
  flush(): void {
    if (!this.#ready && this.#others.length === 0) return
    const ready = this.#ready
    const others = this.#others
    this.#ready = false
    if (others.length > 0) this.#others = []
    if (!this.stream.observed) return
    if (ready) this.stream.next(READY)
    for (const hint of others) this.stream.next(hint)
  }
}
