import type { Observable } from 'rxjs'
import { asFlow, BaseFlow } from './core/base-flow.js'
import { clockOf } from './core/clock.js'
import type { Flow, Operator } from './flow.js'
import { callable, has } from './options.js'

/**
 * Sends a source through operators, from left to right: value first, typed, ours and those of RxJS mixed.
 *
 * Ours ask upstream for what they can work on. One of RxJS cannot: what stands above it is bounded by the source's
 * `credit` instead. No I/O, nothing is subscribed.
 */
export function pipe<A>(source: Observable<A>): Flow<A>
export function pipe<A, B>(source: Observable<A>, ab: Operator<A, B>): Flow<B>
export function pipe<A, B, C>(source: Observable<A>, ab: Operator<A, B>, bc: Operator<B, C>): Flow<C>
export function pipe<A, B, C, D>(
  source: Observable<A>,
  ab: Operator<A, B>,
  bc: Operator<B, C>,
  cd: Operator<C, D>,
): Flow<D>
export function pipe<A, B, C, D, E>(
  source: Observable<A>,
  ab: Operator<A, B>,
  bc: Operator<B, C>,
  cd: Operator<C, D>,
  de: Operator<D, E>,
): Flow<E>
export function pipe<A, B, C, D, E, F>(
  source: Observable<A>,
  ab: Operator<A, B>,
  bc: Operator<B, C>,
  cd: Operator<C, D>,
  de: Operator<D, E>,
  ef: Operator<E, F>,
): Flow<F>
export function pipe<A, B, C, D, E, F, G>(
  source: Observable<A>,
  ab: Operator<A, B>,
  bc: Operator<B, C>,
  cd: Operator<C, D>,
  de: Operator<D, E>,
  ef: Operator<E, F>,
  fg: Operator<F, G>,
): Flow<G>
export function pipe<A, B, C, D, E, F, G, H>(
  source: Observable<A>,
  ab: Operator<A, B>,
  bc: Operator<B, C>,
  cd: Operator<C, D>,
  de: Operator<D, E>,
  ef: Operator<E, F>,
  fg: Operator<F, G>,
  gh: Operator<G, H>,
): Flow<H>
export function pipe<A, B, C, D, E, F, G, H, I>(
  source: Observable<A>,
  ab: Operator<A, B>,
  bc: Operator<B, C>,
  cd: Operator<C, D>,
  de: Operator<D, E>,
  ef: Operator<E, F>,
  fg: Operator<F, G>,
  gh: Operator<G, H>,
  hi: Operator<H, I>,
  ...more: Operator<unknown, unknown>[]
): Flow<I>
export function pipe(source: Observable<unknown>, ...operators: Operator<never, unknown>[]): Flow<unknown> {
  has('an Observable', 'subscribe')(source, 'pipe.source')
  for (const [index, operator] of operators.entries()) callable(operator, `pipe.operators[${index}]`)
  const clock = source instanceof BaseFlow ? source.clock : clockOf(undefined)
  return operators.reduce<Flow<unknown>>(
    (flow, operator) => asFlow(operator(flow as Flow<never>), clock),
    asFlow(source, clock),
  )
}
