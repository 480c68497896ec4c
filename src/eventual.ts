/**
 * A promise whose callbacks run synchronously when it is resolved.
 *
 * Native promises continue in microtasks, which a virtual-time scheduler never runs. Everything inside the engine
 * that a promise would be used for is an `Eventual`, so that a whole pipeline makes progress within one frame of a
 * `TestScheduler`. It has the shape of a `Promise`: `await` and RxJS accept it.
 */
export class Eventual<T> implements Promise<T> {
  static resolved<T>(value: T): Eventual<T> {
    const eventual = new Eventual<T>()
    eventual.locked = true
    eventual.state = 'resolved'
    eventual.value = value
    return eventual
  }

  static rejected<T = never>(error: unknown): Eventual<T> {
    const eventual = new Eventual<T>()
    eventual.locked = true
    eventual.state = 'rejected'
    eventual.value = error
    return eventual
  }

  /** Follows a thenable, or holds a plain value. */
  static from<T>(value: T | PromiseLike<T>): Eventual<T> {
    if (value instanceof Eventual) return value
    const eventual = new Eventual<T>()
    eventual.resolve(value)
    return eventual
  }

  /** Resolves with all the values in order, or rejects with the first error. */
  static all<T>(eventuals: readonly PromiseLike<T>[]): Eventual<T[]> {
    const result = new Eventual<T[]>()
    const values = new Array<T>(eventuals.length)
    let missing = eventuals.length
    if (missing === 0) result.resolve(values)
    eventuals.forEach((eventual, index) => {
      eventual.then(
        (value) => {
          values[index] = value
          missing -= 1
          if (missing === 0) result.resolve(values)
        },
        (error) => result.reject(error),
      )
    })
    return result
  }

  private state: 'pending' | 'resolved' | 'rejected' = 'pending'
  private locked = false
  private value: unknown
  private waiting: (() => void)[] | undefined

  get [Symbol.toStringTag](): string {
    return 'Eventual'
  }

  /** Whether it has a value, and no error. */
  get fulfilled(): boolean {
    return this.state === 'resolved'
  }

  get pending(): boolean {
    return this.state === 'pending'
  }

  /** The first of `resolve` and `reject` counts. A thenable is followed. */
  resolve(value: T | PromiseLike<T>): void {
    if (this.locked) return
    this.locked = true
    if (!isThenable(value)) return this.settle('resolved', value)
    try {
      value.then(
        (inner) => this.settle('resolved', inner),
        (error) => this.settle('rejected', error),
      )
    } catch (error) {
      this.settle('rejected', error)
    }
  }

  reject(error: unknown): void {
    if (this.locked) return
    this.locked = true
    this.settle('rejected', error)
  }

  // biome-ignore lint/suspicious/noThenProperty: it is a thenable on purpose
  then<A = T, B = never>(
    onValue?: ((value: T) => A | PromiseLike<A>) | null,
    onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Eventual<A | B> {
    const next = new Eventual<A | B>()
    if (this.state === 'pending') this.wait(() => this.pass(next, onValue, onError))
    else this.pass(next, onValue, onError)
    return next
  }

  /** Like `then`, without a promise of its own: for callers that have no use for one. */
  listen(onValue: (value: T) => void, onError: (error: unknown) => void): void {
    if (this.state === 'resolved') onValue(this.value as T)
    else if (this.state === 'rejected') onError(this.value)
    else this.wait(() => this.listen(onValue, onError))
  }

  /** The native promise of the same. */
  promise(): Promise<T> {
    if (this.state === 'resolved') return Promise.resolve(this.value as T)
    if (this.state === 'rejected') return Promise.reject(this.value)
    return new Promise((resolve, reject) => this.listen(resolve, reject))
  }

  catch<B = never>(onError?: ((error: unknown) => B | PromiseLike<B>) | null): Eventual<T | B> {
    return this.then(null, onError)
  }

  finally(onEnd?: (() => void) | null): Eventual<T> {
    return this.then(
      (value) => {
        onEnd?.()
        return value
      },
      (error) => {
        onEnd?.()
        throw error
      },
    )
  }

  private wait(run: () => void): void {
    if (this.waiting) this.waiting.push(run)
    else this.waiting = [run]
  }

  private settle(state: 'resolved' | 'rejected', value: unknown): void {
    this.state = state
    this.value = value
    const waiting = this.waiting
    this.waiting = undefined
    if (waiting) for (const run of waiting) run()
  }

  private pass<A, B>(
    next: Eventual<A | B>,
    onValue?: ((value: T) => A | PromiseLike<A>) | null,
    onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): void {
    const callback = (this.state === 'resolved' ? onValue : onError) as ((value: unknown) => A | B) | null | undefined
    try {
      if (callback) next.resolve(callback(this.value))
      else if (this.state === 'resolved') next.resolve(this.value as A)
      else next.reject(this.value)
    } catch (error) {
      next.reject(error)
    }
  }
}

/** Whether a value has a callable `then`. */
export function isThenable(value: unknown): value is PromiseLike<never> {
  return (
    ((typeof value === 'object' && value !== null) || typeof value === 'function') &&
    'then' in value &&
    typeof value.then === 'function'
  )
}
