/**
 * The events of a source. An observer can neither break nor delay the stream: what it throws is reported as a
 * process warning and goes no further.
 */
import { Observable, type Observer, type Subscriber, type Subscription } from 'rxjs'
import type { SourceEvent } from '../events.js'

export class EventStream extends Observable<SourceEvent> {
  private readonly observers = new Set<Subscriber<SourceEvent>>()

  constructor() {
    super((subscriber) => {
      this.observers.add(subscriber)
      return () => this.observers.delete(subscriber)
    })
  }

  /** False when nobody listens, so that no event need be made. */
  get observed(): boolean {
    return this.observers.size > 0
  }

  emit(event: SourceEvent): void {
    for (const observer of [...this.observers]) observer.next(event)
  }

  override subscribe(
    observerOrNext?: Partial<Observer<SourceEvent>> | ((event: SourceEvent) => void) | null,
  ): Subscription {
    const observer = typeof observerOrNext === 'function' ? { next: observerOrNext } : (observerOrNext ?? {})
    return super.subscribe({
      next: (event) => contained(() => observer.next?.(event)),
      error: (error) => contained(() => observer.error?.(error)),
      complete: () => contained(() => observer.complete?.()),
    })
  }
}

function contained(work: () => void): void {
  try {
    work()
  } catch (error) {
    process.emitWarning(error instanceof Error ? error : String(error), 'MillraceObserverWarning')
  }
}
