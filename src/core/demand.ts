/**
 * The hidden face of a flow, through which demand travels upstream.
 *
 * A Millrace operator asks its upstream for exactly as many values as it can work on now, so a claim is made only
 * when a lane is free. `request(Infinity)` is what an observer says that cannot ask (RxJS): a source then grants its
 * `credit` and no more.
 */

/** Where values go. After `error`, `complete` or `cancel` nothing more arrives. */
export interface DemandObserver<T> {
  next(value: T): void
  error(error: unknown): void
  complete(): void
}

export interface DemandSubscription {
  /** Allows `n` more values. */
  request(n: number): void
  /**
   * So many more will be asked for as soon as the settlements of this turn are confirmed. Where the store carries out
   * a turn in order, what they will need is claimed along with them; it is handed over when it is asked for.
   */
  foresee?(n: number): void
  /** Wants no more. What was claimed goes back; the scope tells when. */
  cancel(): void
}

/** The method, under a symbol that nobody else can name. */
export const demand = Symbol('millrace.demand')
