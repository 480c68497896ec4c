/**
 * What all consumers of one open queue share: the driver, the session, the settlements of a turn, the stream of
 * hints, the timer for what is due, and who waits.
 *
 * Work is done in turns: what was asked for during one turn of the program (settlements, demand) is sent when that
 * has ended, settlements first, so that a driver can put both into one round trip.
 */
import type { Subscription } from 'rxjs'
import type { Backend, Hint, QueueDriver, Reply, RequestToken, SharedSettings } from '../driver.js'
import { BackendUnavailableError, ClosedError } from '../errors.js'
import { Eventual } from '../eventual.js'
import { type Clock, clockOf } from './clock.js'
import { DueTimer } from './due.js'
import { ask, type RequestContext } from './request.js'
import { Session } from './session.js'
import { Settler } from './settler.js'
import { type Waiter, WaitingRoom } from './waiting.js'

/** How long a call that is not a settlement may go unanswered. */
const CALL_BOUND_MS = 10_000
/** How long a driver may take to let go. */
const CLOSE_BOUND_MS = 1_000

/** A consumer, as its hub sees it. */
export interface HubMember extends Waiter {
  /** Claims, if there is demand and no claim in flight. */
  pump(): void
  onHint(hint: Hint): void
  onHintsMissed(): void
  onDown(error: unknown): void
  onUp(): void
}

export class Hub implements RequestContext {
  readonly clock: Clock
  readonly session = new Session()
  readonly driver: QueueDriver
  readonly settler: Settler
  readonly waiting = new WaitingRoom()
  readonly members = new Set<HubMember>()
  /** Rises with every hint: a claim that was sent before the last one may have missed what it hinted at. */
  epoch = 0
  closed = false
  /** Hints do not come, whatever the features say. */
  deaf = false

  /** How many requests have failed and go on. */
  private unanswered = 0
  /** Hints have come again while a request still went unanswered. */
  private upWithheld = false
  private readonly due: DueTimer
  private readonly eager = new Set<HubMember>()
  private readonly watchers = new Set<(hint: Hint) => void>()
  private turnPending = false
  private hints: Subscription | undefined
  private stored: Eventual<SharedSettings> | undefined

  constructor(
    readonly queue: string,
    readonly backend: Backend,
    private readonly proposed: () => Partial<SharedSettings>,
    private readonly accept: (stored: SharedSettings) => void,
    close: () => PromiseLike<unknown>,
  ) {
    this.clock = clockOf(backend.scheduler)
    this.driver = backend.open(queue, { close })
    this.settler = new Settler(this.driver, this)
    this.due = new DueTimer(this)
  }

  /** Fulfils when the shared settings are stored and agree; asked once, and again only after it failed. */
  ready(): Eventual<SharedSettings> {
    if (this.stored) return this.stored
    const stored = this.request(() => this.driver.settings(this.proposed())).then((settings) => {
      this.accept(settings)
      return settings
    })
    this.stored = stored
    stored.then(null, () => {
      this.stored = undefined
    })
    return stored
  }

  /** Asks the driver, within the bound for calls, or refuses because the queue is closed. */
  request<T>(call: (token: RequestToken) => Reply<T>, boundMs = CALL_BOUND_MS): Eventual<T> {
    if (this.closed) return Eventual.rejected(new ClosedError(`queue ${JSON.stringify(this.queue)}`))
    return ask(this, call, boundMs)
  }

  join(member: HubMember): void {
    this.members.add(member)
    this.listen()
  }

  leave(member: HubMember): void {
    this.eager.delete(member)
    this.waiting.leave(member)
    if (this.members.delete(member)) this.rest()
  }

  /** Calls back on each hint until the returned function is called. */
  watch(work: (hint: Hint) => void): () => void {
    this.watchers.add(work)
    this.listen()
    // Without a consumer nobody else would see to what becomes due.
    this.due.expect(0)
    return () => {
      if (this.watchers.delete(work)) this.rest()
    }
  }

  /** The member will be pumped when this turn has ended. */
  soon(member: HubMember): void {
    this.eager.add(member)
    this.turnSoon()
  }

  /** Settlements and demand are sent when this turn has ended. */
  turnSoon(): void {
    if (this.turnPending) return
    this.turnPending = true
    this.clock.soon(this.endTurn)
  }

  /** What a claim or a sweep said of the next instant at which something becomes due. */
  dueIn(ms: number | undefined): void {
    this.due.expect(ms)
  }

  /** Somebody who waits, in each kind of waiter, reads again. */
  wake(): void {
    this.epoch += 1
    this.waiting.wakeAll()
  }

  /** Whether any member or watcher still needs this hub. */
  get busy(): boolean {
    return this.members.size > 0 || this.watchers.size > 0
  }

  onDown(error: unknown): void {
    for (const member of [...this.members]) member.onDown(error)
  }

  onUnanswered(error: unknown): void {
    this.unanswered += 1
    this.onDown(error)
  }

  onEnded(): void {
    this.unanswered -= 1
    if (this.unanswered === 0 && this.upWithheld) this.onUp()
  }

  onUp(): void {
    this.upWithheld = false
    for (const member of [...this.members]) member.onUp()
    this.wake()
  }

  /** Lets go of the driver. Fulfils within a bound, whatever the driver does: there is nothing left to do about it. */
  close(): Eventual<void> {
    this.closed = true
    this.due.stop()
    this.hints?.unsubscribe()
    const closed = new Eventual<void>()
    const timer = this.clock.after(CLOSE_BOUND_MS, () => closed.resolve())
    const done = () => {
      timer.stop()
      closed.resolve()
    }
    this.closeDriver().then(done, done)
    return closed
  }

  private closeDriver(): PromiseLike<void> {
    try {
      return this.driver.close()
    } catch (error) {
      return Eventual.rejected(error)
    }
  }

  private readonly endTurn = (): void => {
    this.turnPending = false
    this.settler.flush()
    for (const member of this.eager) {
      this.eager.delete(member)
      member.pump()
    }
  }

  /** Listens for hints. Where that ends by itself, the slow poll stands in, and tries to listen again. */
  listen(): void {
    if (this.hints || this.closed || !this.busy) return
    const wasDeaf = this.deaf
    this.deaf = false
    const hints = this.driver.arrivals().subscribe({
      next: (hint) => this.hinted(hint),
      error: (error) => this.goDeaf(error),
      complete: () => this.goDeaf(new BackendUnavailableError('the stream of hints ended')),
    })
    if (this.deaf) return
    this.hints = hints
    // What happened meanwhile was not hinted at.
    if (wasDeaf) this.onUp()
  }

  private goDeaf(error: unknown): void {
    this.deaf = true
    this.hints = undefined
    if (!this.busy) return
    this.onDown(error)
    this.due.expect(undefined)
  }

  private rest(): void {
    if (this.busy) return
    this.hints?.unsubscribe()
    this.hints = undefined
    this.due.stop()
  }

  /** Hints come again. That the store can be reached is another matter: a request that goes unanswered knows better. */
  private readAgain(): void {
    for (const member of [...this.members]) member.onHintsMissed()
    this.upWithheld = this.unanswered > 0
    if (this.upWithheld) this.wake()
    else this.onUp()
  }

  private hinted(hint: Hint): void {
    if (hint.kind === 'ready') this.wake()
    else if (hint.kind === 'due') this.due.expect(hint.inMs)
    else if (hint.kind === 'down') this.onDown(hint.error)
    else if (hint.kind === 'up') this.readAgain()
    else if (hint.kind === 'cancel' || hint.kind === 'lease')
      for (const member of [...this.members]) member.onHint(hint)
    for (const watcher of [...this.watchers]) watcher(hint)
  }
}
