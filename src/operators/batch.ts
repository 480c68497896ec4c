import type { Observable } from 'rxjs'
import { asFlow, DerivedFlow } from '../core/base-flow.js'
import { Batches } from '../core/batches.js'
import type { Delivery } from '../delivery.js'
import { InvalidOptionError } from '../errors.js'
import type { Flow } from '../flow.js'
import { checkOptions, duration, integer } from '../options.js'

export interface BatchOptions {
  /** The most deliveries of a batch. */
  readonly size: number
  /** A batch that is not full is emitted so many milliseconds after its first member came. */
  readonly withinMs: number
}

const RULES = { size: integer(1), withinMs: duration(0) }

/**
 * Gathers deliveries into arrays. Each member settles by itself; a handler after it (`mergeMap`) settles every member
 * that is not settled when it ends. What has gathered and cannot be emitted any more (cancel) is released uncounted.
 *
 * An observer that cannot ask (RxJS) gets the next batch when every member of the last one is settled.
 *
 * @example
 * ```ts
 * pipe(rows.source(), batch({ size: 100, withinMs: 250 }), mergeMap((ds) => insertAll(ds.map((d) => d.payload)), 2))
 * ```
 */
export function batch(options: BatchOptions): <T>(source: Observable<Delivery<T>>) => Flow<Delivery<T>[]> {
  checkOptions(options, 'batch', RULES)
  for (const field of ['size', 'withinMs'] as const) {
    if (options?.[field] === undefined) throw new InvalidOptionError(`batch.${field}`, undefined, 'given')
  }
  return <T>(observable: Observable<Delivery<T>>) => {
    const source = asFlow(observable)
    return new DerivedFlow<Delivery<T>[]>(source.clock, (observer) => new Batches(source, options, observer))
  }
}
