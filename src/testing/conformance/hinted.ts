/**
 * A backend whose stream of hints is in the hands of a test.
 */
import { Observable, type Subscriber, throwError } from 'rxjs'
import type { Backend, BackendOwner, Hint } from '../../driver.js'

/** The same backend, whose stream of hints can be watched, muted, added to, ended and refused. */
export interface Hinted {
  readonly backend: Backend
  /** How often a stream of hints was opened. */
  readonly opened: number
  /** How many streams of hints are open now. */
  readonly live: number
  /** The streams look alive and bring nothing. */
  mute(on: boolean): void
  /** Brings a hint that the backend did not give. */
  tell(hint: Hint): void
  /** Ends those that are open now. */
  end(error: Error): void
  /** The next streams fail as soon as they are opened. */
  refuse(times: number, error: Error): void
}

/** Wraps a backend whose drivers are plain objects, such as a faulty one. */
export function hinted(backend: Backend, features: Partial<Backend['features']> = {}): Hinted {
  const observers = new Set<Subscriber<Hint>>()
  let opened = 0
  let muted = false
  let refusals: Error[] = []
  const open = (queue: string, owner: BackendOwner) => {
    const driver = backend.open(queue, owner)
    const arrivals = () => {
      opened += 1
      const refusal = refusals.shift()
      if (refusal) return throwError(() => refusal)
      return new Observable<Hint>((observer) => {
        observers.add(observer)
        const inner = driver.arrivals().subscribe((hint) => {
          if (!muted) observer.next(hint)
        })
        return () => {
          observers.delete(observer)
          inner.unsubscribe()
        }
      })
    }
    return { ...driver, arrivals }
  }
  return {
    backend: { ...backend, features: { ...backend.features, ...features }, open },
    get opened() {
      return opened
    },
    get live() {
      return observers.size
    },
    mute: (on) => {
      muted = on
    },
    tell: (hint) => {
      for (const observer of [...observers]) observer.next(hint)
    },
    end: (error) => {
      for (const observer of [...observers]) observer.error(error)
    },
    refuse: (times, error) => {
      refusals = Array.from({ length: times }, () => error)
    },
  }
}
