import type { Delivery } from 'millrace'
import type { MarbleHelpers, TestQueue } from 'millrace/testing'
import { delay, type Observable, of, throwError, timer } from 'rxjs'
import { mergeMap } from 'rxjs/operators'

/** A handler that takes so many frames and gives the id. */
export function takes(frames: number): (delivery: Delivery<unknown>) => Observable<string> {
  return ({ id }) => of(id).pipe(delay(frames))
}

/** A handler that takes so many frames and fails. */
export function failsAfter(frames: number): (delivery: Delivery<unknown>) => Observable<never> {
  return () => timer(frames).pipe(mergeMap(() => throwError(() => new Error('no'))))
}

/** What the digits of a marble of `held` stand for. */
export const counts: Readonly<Record<string, number>> = Object.fromEntries(
  Array.from({ length: 10 }, (_, count) => [String(count), count]),
)

/** Expects that the store never held more claims than this. */
export function expectAtMost<T>(queue: TestQueue<T>, most: number, seen: { max: number }): void {
  queue.held.subscribe((held) => {
    seen.max = Math.max(seen.max, held)
    if (held > most) throw new Error(`${held} claims are held, not at most ${most}`)
  })
}

/** Runs the work in a frame, after what is already planned for it. */
export function at({ scheduler }: MarbleHelpers, frame: number, work: () => void): void {
  scheduler.schedule(work, frame)
}
