/**
 * A backend that writes down the life of every claim, in frames of a virtual-time scheduler, and can take its time.
 */
import { Observable, type SchedulerLike, Subject, type Subscription } from 'rxjs'
import type {
  Backend,
  BackendOwner,
  Claim,
  QueueDriver,
  QueueStats,
  Reply,
  SettleCommand,
  SettleResult,
} from '../driver.js'
import { BackendUnavailableError } from '../errors.js'
import { Eventual } from '../eventual.js'
import type { Verb } from './faulty-backend.js'
import { type Course, courseOf, type Latencies } from './latency.js'

/** A claim's life, as `expectSubscriptions` takes it: from its grant to its end in the store. */
export interface ClaimWindow {
  subscribedFrame: number
  unsubscribedFrame: number
}

/** Called around each call of the driver: before the store sees it, and after it has run it, before it answers. */
export type StepListener = (phase: 'before' | 'after', verb: Verb) => void

type LiveWindow = ClaimWindow & { token: string; lapse: Subscription }

export class ClaimRecord {
  readonly acks = new Subject<string>()
  readonly requeues = new Subject<string>()
  readonly dead = new Subject<string>()
  readonly released = new Subject<string>()
  /** How many claims the store holds, whenever that changes; the present number first. */
  readonly held: Observable<number>
  onStep: StepListener | undefined
  /** Called when the store has changed. */
  onChange: (() => void) | undefined

  private readonly windows = new Map<string, ClaimWindow[]>()
  private readonly live = new Map<string, LiveWindow>()
  /** Of all claims ever: a claim that is asked for again is answered as it was at first. */
  private readonly tokens = new Set<string>()
  private readonly heldChanges = new Subject<number>()

  constructor(private readonly scheduler: SchedulerLike) {
    this.held = new Observable((subscriber) => {
      subscriber.next(this.live.size)
      return this.heldChanges.subscribe(subscriber)
    })
  }

  /** The windows of a message's claims, in order. The array fills as the test goes on. */
  claimsOf(id: string): ClaimWindow[] {
    const windows = this.windows.get(id) ?? []
    this.windows.set(id, windows)
    return windows
  }

  granted(claims: readonly Claim[]): void {
    const fresh = claims.filter(({ token }) => !this.tokens.has(token))
    if (fresh.length === 0) return
    for (const claim of fresh) {
      this.tokens.add(claim.token)
      // Granted again: the lease of the claim before has lapsed in this very frame.
      this.end(claim.id)
      const window: LiveWindow = {
        subscribedFrame: this.scheduler.now(),
        unsubscribedFrame: Number.POSITIVE_INFINITY,
        token: claim.token,
        lapse: this.lapseAt(claim.id, claim.leaseExpiresAt),
      }
      this.live.set(claim.id, window)
      this.claimsOf(claim.id).push(window)
    }
    this.heldChanges.next(this.live.size)
    this.changed()
  }

  renewed(id: string, token: string, expiresAt: number): void {
    const window = this.live.get(id)
    if (window?.token !== token) return
    window.lapse.unsubscribe()
    window.lapse = this.lapseAt(id, expiresAt)
  }

  settled(command: SettleCommand, { state }: SettleResult): void {
    if (state === 'stale' || state === 'refused') return
    // A repeat is answered as it was at first: the claim has ended already.
    if (this.live.get(command.id)?.token !== command.token) return
    this.end(command.id)
    if (state === 'acked' || state === 'forwarded') this.acks.next(command.id)
    else if (state === 'dead') this.dead.next(command.id)
    else if (command.kind === 'release') this.released.next(command.id)
    else this.requeues.next(command.id)
    this.changed()
  }

  changed(): void {
    this.onChange?.()
  }

  /** The claims that a purge dropped: those that the store does not list any more. */
  purged(left: readonly { readonly id: string }[]): void {
    const listed = new Set(left.map(({ id }) => id))
    for (const id of [...this.live.keys()]) if (!listed.has(id)) this.end(id)
    this.changed()
  }

  /** A claim that nobody settles or renews ends with its lease, though the store finds that out only later. */
  private lapseAt(id: string, expiresAt: number): Subscription {
    return this.scheduler.schedule(() => {
      this.end(id)
      this.changed()
    }, expiresAt - this.scheduler.now())
  }

  private end(id: string): void {
    const window = this.live.get(id)
    if (!window) return
    window.lapse.unsubscribe()
    window.unsubscribedFrame = this.scheduler.now()
    this.live.delete(id)
    this.heldChanges.next(this.live.size)
  }
}

/** Wraps a backend that runs in the scheduler. */
export function recordingBackend(
  backend: Backend,
  scheduler: SchedulerLike,
  record: ClaimRecord,
  { latencies = {}, pipelined }: { readonly latencies: Latencies | undefined; readonly pipelined: boolean },
): Backend {
  const made = new Map<Verb, number>()
  const call = <T>(verb: Verb, run: () => Reply<T>, note?: (value: T) => void): Reply<T> => {
    const nth = made.get(verb) ?? 0
    made.set(verb, nth + 1)
    return travel(scheduler, courseOf(latencies[verb], nth), () => {
      record.onStep?.('before', verb)
      const answer = run()
      if (note) answer.then(note, () => {})
      record.onStep?.('after', verb)
      return answer
    })
  }
  return {
    ...backend,
    name: backend.name,
    features: { ...backend.features, pipelined },
    scheduler,
    open: (queue: string, owner: BackendOwner) => recordingDriver(backend.open(queue, owner), record, call),
    close: () => backend.close(),
  }
}

/** Runs a call in the store, and ends it for its caller, when its course says. */
function travel<T>(scheduler: SchedulerLike, { runsAt, endsAt, fails }: Course, run: () => Reply<T>): Reply<T> {
  if (runsAt === 0 && endsAt === 0 && !fails) return run()
  const caller = new Eventual<T>()
  const at = (frame: number, work: () => void) => (frame === 0 ? work() : scheduler.schedule(work, frame))
  let answer: Reply<T> | undefined
  if (runsAt !== undefined) {
    at(runsAt, () => {
      answer = run()
      if (endsAt === runsAt && !fails) caller.resolve(answer)
    })
  }
  if (endsAt === undefined || (endsAt === runsAt && !fails)) return caller
  at(endsAt, () => {
    if (fails || !answer) caller.reject(new BackendUnavailableError('the latency of the test says so'))
    else caller.resolve(answer)
  })
  return caller
}

type Call = <T>(verb: Verb, run: () => Reply<T>, note?: (value: T) => void) => Reply<T>

function recordingDriver(driver: QueueDriver, record: ClaimRecord, call: Call): QueueDriver {
  return {
    settings: (proposed) => call('settings', () => driver.settings(proposed)),
    configure: (changes) => call('configure', () => driver.configure(changes)),
    enqueue: (batch, token) =>
      call(
        'enqueue',
        () => driver.enqueue(batch, token),
        () => record.changed(),
      ),
    claim: (request) =>
      call(
        'claim',
        () => driver.claim(request),
        ({ claims }) => record.granted(claims),
      ),
    settle: (commands, token) =>
      call(
        'settle',
        () => driver.settle(commands, token),
        (results) => {
          for (const [index, command] of commands.entries()) record.settled(command, results[index] as SettleResult)
        },
      ),
    renew: (renewals) =>
      call(
        'renew',
        () => driver.renew(renewals),
        (results) => {
          for (const [index, { id, token }] of renewals.entries()) {
            record.renewed(id, token, results[index]?.leaseExpiresAt ?? 0)
          }
        },
      ),
    sweep: (limit) => call('sweep', () => driver.sweep(limit)),
    arrivals: () => driver.arrivals(),
    stats: (): Reply<QueueStats> => call('stats', () => driver.stats()),
    list: (state, page) => call('list', () => driver.list(state, page)),
    deadLetters: (page) => call('deadLetters', () => driver.deadLetters(page)),
    requeueDead: (ids, token) => call('requeueDead', () => driver.requeueDead(ids, token)),
    purgeDead: (ids, token) => call('purgeDead', () => driver.purgeDead(ids, token)),
    purge: (states, limit, token) =>
      call(
        'purge',
        () => driver.purge(states, limit, token),
        () => driver.list('claimed', { limit: 1_000 }).then(({ items }) => record.purged(items)),
      ),
    pause: () => call('pause', () => driver.pause()),
    resume: () => call('resume', () => driver.resume()),
    cancel: (id, token) => call('cancel', () => driver.cancel(id, token)),
    outcome: (id, watch) => call('outcome', () => driver.outcome(id, watch)),
    close: () => call('close', () => driver.close()),
  }
}
