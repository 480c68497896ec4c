import type { Observable } from 'rxjs'
import type { Summary } from '../events.js'
import { abortSignal, checkOptions, duration, has } from '../options.js'
import { asFlow } from './base-flow.js'
import { type Each, Runner, type RunnerOptions, type SinkOptions } from './runner.js'

const RULES = { signal: abortSignal, drainMs: duration(0), graceMs: duration(0), killSignal: abortSignal }

/** Checks a sink's arguments and runs the flow; fulfils as `read` makes of the account. */
export function sink<T, R>(
  name: string,
  flow: Observable<T>,
  options: SinkOptions,
  read: (summary: Summary) => R,
  more: Pick<RunnerOptions, 'until'> & { readonly each?: Each<T> } = {},
): Promise<R> {
  has('a flow', 'subscribe')(flow, `${name}.flow`)
  checkOptions(options, name, RULES)
  const source = asFlow(flow)
  const { each, ...until } = more
  return source.clock.promise(new Runner(source, { ...options, ...until }, each).result.then(read))
}
