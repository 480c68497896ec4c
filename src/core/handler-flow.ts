import type { Observable } from 'rxjs'
import { boolean, callable, checkOptions, integer } from '../options.js'
import { asFlow, DerivedFlow } from './base-flow.js'
import type { Handler } from './handler.js'
import { Lanes, type LanesOptions } from './lanes.js'

const RULES = { storeResult: boolean }

/** The flow of an operator that runs a handler in lanes. `name` is how errors call it. */
export function handlerFlow<V, R, O>(
  name: string,
  handler: Handler<V, R>,
  lanes: number,
  options: { readonly storeResult?: boolean } | undefined,
  emissions: Pick<LanesOptions<R, O>, 'onValue' | 'onSettled'>,
): (source: Observable<V>) => DerivedFlow<O> {
  callable(handler, `${name}.handler`)
  integer(1)(lanes, `${name}.n`)
  checkOptions(options, name, RULES)
  const all = { ...emissions, lanes, storeResult: options?.storeResult ?? false }
  return (observable) => {
    const source = asFlow(observable)
    return new DerivedFlow(source.clock, (observer) => new Lanes(source, handler, all, observer))
  }
}
