/**
 * A backend whose calls can be held, dropped or failed, one by one, to see that nothing is lost by it.
 */
import type { Observable } from 'rxjs'
import type { Backend, BackendOwner, QueueDriver, Reply } from '../driver.js'
import { BackendUnavailableError } from '../errors.js'
import { Eventual } from '../eventual.js'

/** A verb of the driver that answers once. */
export type Verb = Exclude<keyof QueueDriver, 'arrivals'>

/**
 * What happens to a call.
 *
 * - `'hold-request'`: the backend sees it only when the fault is released.
 * - `'hold-reply'`: the backend runs it at once; its answer arrives when the fault is released.
 * - `'drop-request'`: it never reaches the backend, and is never answered.
 * - `'drop-reply'`: the backend runs it, and the answer is lost: the call is never answered.
 * - `'fail-request'`: it never reaches the backend, and fails as unavailable (or with `error`).
 * - `'fail-reply'`: the backend runs it, and the call fails as unavailable (or with `error`).
 */
export type FaultKind = 'hold-request' | 'hold-reply' | 'drop-request' | 'drop-reply' | 'fail-request' | 'fail-reply'

export interface Fault {
  /** Which verb; `'*'` is any. */
  readonly verb: Verb | '*'
  readonly kind: FaultKind
  /** Which of the calls from now on, from 1. Default 1. */
  readonly nth?: number
  /** How many calls from there on. Default 1. */
  readonly times?: number
  readonly error?: Error
}

/** A fault that has been put in place. */
export interface InjectedFault {
  /** Fulfils when a call has run into it (and, for a reply, the backend has run the call). */
  readonly reached: PromiseLike<void>
  /** Lets go what it holds. */
  release(): void
  /** Takes it out of place; what it holds stays held until released. */
  remove(): void
}

export interface FaultyBackend extends Backend {
  /** Every call so far, in order, whether or not it reached the backend. */
  readonly calls: readonly Verb[]
  inject(fault: Fault): InjectedFault
}

/** Wraps a backend. `faults` are in place from the start. */
export function faultyBackend(backend: Backend, faults: readonly Fault[] = []): FaultyBackend {
  const calls: Verb[] = []
  const active = new Set<ActiveFault>()
  const inject = (fault: Fault) => {
    const injected = new ActiveFault(fault, () => active.delete(injected))
    active.add(injected)
    return injected
  }
  for (const fault of faults) inject(fault)
  const call: Call = (verb, run) => {
    calls.push(verb)
    // Every fault counts the call, also when an earlier one takes it.
    const taken = [...active].filter((fault) => fault.takes(verb))
    return taken[0] ? taken[0].apply(run) : run()
  }
  return {
    name: backend.name,
    features: backend.features,
    ...(backend.scheduler && { scheduler: backend.scheduler }),
    calls,
    inject,
    open: (queue: string, owner: BackendOwner) => faultyDriver(backend.open(queue, owner), call),
    close: () => backend.close(),
  }
}

type Call = <T>(verb: Verb, run: () => Reply<T>) => Reply<T>

function faultyDriver(driver: QueueDriver, call: Call): QueueDriver {
  return {
    settings: (proposed) => call('settings', () => driver.settings(proposed)),
    configure: (changes) => call('configure', () => driver.configure(changes)),
    enqueue: (batch, token) => call('enqueue', () => driver.enqueue(batch, token)),
    claim: (request) => call('claim', () => driver.claim(request)),
    settle: (commands, token) => call('settle', () => driver.settle(commands, token)),
    renew: (renewals) => call('renew', () => driver.renew(renewals)),
    sweep: (limit) => call('sweep', () => driver.sweep(limit)),
    arrivals: (): Observable<never> => driver.arrivals() as Observable<never>,
    stats: () => call('stats', () => driver.stats()),
    list: (state, page) => call('list', () => driver.list(state, page)),
    deadLetters: (page) => call('deadLetters', () => driver.deadLetters(page)),
    requeueDead: (ids, token) => call('requeueDead', () => driver.requeueDead(ids, token)),
    purgeDead: (ids, token) => call('purgeDead', () => driver.purgeDead(ids, token)),
    purge: (states, limit, token) => call('purge', () => driver.purge(states, limit, token)),
    pause: () => call('pause', () => driver.pause()),
    resume: () => call('resume', () => driver.resume()),
    cancel: (id, token) => call('cancel', () => driver.cancel(id, token)),
    outcome: (id, watch) => call('outcome', () => driver.outcome(id, watch)),
    close: () => call('close', () => driver.close()),
    ...(driver.ownTransaction && { ownTransaction: driver.ownTransaction }),
  }
}

class ActiveFault implements InjectedFault {
  readonly reached = new Eventual<void>()
  private seen = 0
  private released = false
  private readonly held: (() => void)[] = []

  constructor(
    private readonly fault: Fault,
    readonly remove: () => void,
  ) {}

  release(): void {
    this.released = true
    for (const go of this.held.splice(0)) go()
  }

  /** Counts the call; whether it is one of those that the fault is for. */
  takes(verb: Verb): boolean {
    const { verb: wanted, nth = 1, times = 1 } = this.fault
    if (wanted !== '*' && wanted !== verb) return false
    this.seen += 1
    return this.seen >= nth && this.seen < nth + times
  }

  apply<T>(run: () => Reply<T>): Reply<T> {
    const answer = new Eventual<T>()
    const { kind } = this.fault
    if (kind.endsWith('request')) {
      this.reached.resolve()
      this.onRequest(run, answer)
    } else {
      const reply = run()
      reply.then(
        () => this.reached.resolve(),
        () => this.reached.resolve(),
      )
      this.onReply(reply, answer)
    }
    return answer
  }

  private onRequest<T>(run: () => Reply<T>, answer: Eventual<T>): void {
    if (this.fault.kind === 'fail-request') answer.reject(this.error())
    else if (this.fault.kind === 'hold-request') this.hold(() => answer.resolve(run()))
  }

  private onReply<T>(reply: Reply<T>, answer: Eventual<T>): void {
    if (this.fault.kind === 'fail-reply')
      reply.then(
        () => answer.reject(this.error()),
        () => answer.reject(this.error()),
      )
    else if (this.fault.kind === 'hold-reply') this.hold(() => answer.resolve(reply))
  }

  private hold(go: () => void): void {
    if (this.released) go()
    else this.held.push(go)
  }

  private error(): Error {
    return this.fault.error ?? new BackendUnavailableError('an injected fault')
  }
}
