/**
 * A flow: a stream that is at once an RxJS Observable and an AsyncIterable, and that can be asked for more.
 */
import type { Observable } from 'rxjs'

/** A stream with both faces. Cold: each subscription and each iterator is a consumer of its own. */
export interface Flow<T> extends Observable<T>, AsyncIterable<T> {
  [Symbol.asyncIterator](): AsyncIterator<T, undefined>
}

/** A function from one stream to another, as `pipe` takes it: ours, or any operator of RxJS. */
export type Operator<T, R> = (source: Flow<T>) => Observable<R>
