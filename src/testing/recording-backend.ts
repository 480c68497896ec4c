/**
 * A backend that writes down the life of every claim, in frames of a virtual-time scheduler, and can take its time.
 */
import { Observable, type SchedulerLike, Subject } from 'rxjs'
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
import { Eventual } from '../eventual.js'
import type { Verb } from './faulty-backend.js'

/** A claim's life, as `expectSubscriptions` takes it: from its grant to its end in the store. */
export interface ClaimWindow {
  subscribedFrame: number
  unsubscribedFrame: number
}

/** How many frames a call takes to the store, and its answer back. */
export interface Latency {
  readonly request?: number
  readonly reply?: number
}

export type Latencies = Partial<Record<Verb, Latency>>

/** Called around each call of the driver: before the store sees it, and after it has run it, before it answers. */
export type StepListener = (phase: 'before' | 'after', verb: Verb) => void

type LiveWindow = ClaimWindow & { token: string; expiresAt: number }

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
    for (const claim of claims) {
      this.lapsed(claim.id)
      const window: LiveWindow = {
        subscribedFrame: this.scheduler.now(),
        unsubscribedFrame: Number.POSITIVE_INFINITY,
        token: claim.token,
        expiresAt: claim.leaseExpiresAt,
      }
      this.live.set(claim.id, window)
      this.claimsOf(claim.id).push(window)
    }
    this.changed()
  }

  renewed(id: string, token: string, expiresAt: number): void {
    const window = this.live.get(id)
    if (window?.token === token) window.expiresAt = expiresAt
  }

  settled(command: SettleCommand, { state }: SettleResult): void {
    if (state === 'stale' || state === 'refused') return
    this.end(command.id, this.scheduler.now())
    if (state === 'acked' || state === 'forwarded') this.acks.next(command.id)
    else if (state === 'dead') this.dead.next(command.id)
    else if (command.kind === 'release') this.released.next(command.id)
    else this.requeues.next(command.id)
    this.changed()
  }

  changed(): void {
    this.onChange?.()
  }

  /** A claim that nobody settled ended with its lease, whenever that is found out. */
  private lapsed(id: string): void {
    const window = this.live.get(id)
    if (window) this.end(id, Math.min(window.expiresAt, this.scheduler.now()))
  }

  private end(id: string, frame: number): void {
    const window = this.live.get(id)
    if (!window) return
    window.unsubscribedFrame = frame
    this.live.delete(id)
    this.heldChanges.next(this.live.size)
  }
}

/** Wraps a backend that runs in the scheduler. */
export function recordingBackend(
  backend: Backend,
  scheduler: SchedulerLike,
  record: ClaimRecord,
  latencies: Latencies = {},
): Backend {
  const wait = <T>(frames: number | undefined, work: () => Reply<T>): Reply<T> => {
    if (!frames) return work()
    const later = new Eventual<T>()
    scheduler.schedule(() => later.resolve(work()), frames)
    return later
  }
  const call = <T>(verb: Verb, run: () => Reply<T>, note?: (value: T) => void): Reply<T> => {
    const { request, reply } = latencies[verb] ?? {}
    return wait(request, () => {
      record.onStep?.('before', verb)
      const answer = run()
      if (note) answer.then(note, () => {})
      record.onStep?.('after', verb)
      return wait(reply, () => answer)
    })
  }
  return {
    ...backend,
    name: backend.name,
    features: backend.features,
    scheduler,
    open: (queue: string, owner: BackendOwner) => recordingDriver(backend.open(queue, owner), record, call),
    close: () => backend.close(),
  }
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
          commands.forEach((command, index) => record.settled(command, results[index] as SettleResult))
        },
      ),
    renew: (renewals) =>
      call(
        'renew',
        () => driver.renew(renewals),
        (results) => {
          renewals.forEach(({ id, token }, index) => record.renewed(id, token, results[index]?.leaseExpiresAt ?? 0))
        },
      ),
    sweep: (limit) => call('sweep', () => driver.sweep(limit)),
    arrivals: () => driver.arrivals(),
    stats: (): Reply<QueueStats> => call('stats', () => driver.stats()),
    list: (state, page) => call('list', () => driver.list(state, page)),
    deadLetters: (page) => call('deadLetters', () => driver.deadLetters(page)),
    requeueDead: (ids, token) => call('requeueDead', () => driver.requeueDead(ids, token)),
    purgeDead: (ids, token) => call('purgeDead', () => driver.purgeDead(ids, token)),
    purge: (states, limit) => call('purge', () => driver.purge(states, limit)),
    pause: () => call('pause', () => driver.pause()),
    resume: () => call('resume', () => driver.resume()),
    cancel: (id) => call('cancel', () => driver.cancel(id)),
    outcome: (id, watch) => call('outcome', () => driver.outcome(id, watch)),
    close: () => call('close', () => driver.close()),
  }
}
