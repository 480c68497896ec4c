/**
 * Settlements and claims, of one turn in one transaction.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { ClaimReply, ClaimRequest, SettleResult } from '../../driver.js'
import { pageKey } from './change.js'
import {
  type Claiming,
  claimOp,
  type Granted,
  grantedIn,
  handedOver,
  missedIn,
  placeOf,
  planClaims,
  windowFor,
} from './claim-txn.js'
import type { Op, Result } from './client.js'
import type { Desk, Held } from './desk.js'
import { entryOf } from './entry.js'
import type { Job } from './lane.js'
import { dropUnreadable, isDue, maintain } from './maintenance.js'
import { type Cut, cutCompare, noteEnded, trimOwn } from './outcomes.js'
import { leaseFor, type Page } from './page.js'
import { buryLost, type Claimed, claimOf, readPayloads } from './payloads.js'
import type { Head } from './queue-head.js'
import { decode } from './record.js'
import { recoverNowAndThen } from './recovery.js'
import type { SessionRecord } from './session-record.js'
import { type Settled, type SettleInput, Settlements } from './settlements.js'
import { now } from './time.js'
import { get, only, packed } from './txn.js'
import { Wishes } from './wishes.js'

export type ConsumeJob = Job<SettleInput | ClaimRequest, unknown>

/** Operations of settlements on the level of claims, which need the rest of the path. */
const MOST_GROUPS = 14
/** So long after a claim was lost to another consumer it is reckoned with that it will be again. */
const CONTENDED_MS = 5_000
/** So few messages may all be gone by the time they are claimed. */
const DISPUTED = 8
/** Two who wait lose half of what they try, and hardly hesitate; of more each hesitates the longer, the more it loses. */
const CROWDED = 0.4
const HESITATION_MS = 40
/** How often what was lost to others is tried again before it is given back. */
const MAX_LOSSES = 50

/** Carries out what was asked for together. */
export async function consume(desk: Desk, jobs: readonly ConsumeJob[]): Promise<void> {
  await new Turn(desk, jobs).run()
}

class Turn {
  readonly #desk: Desk
  readonly #settlements = new Settlements()
  readonly #wishes = new Wishes()
  #losses = 0
  /** The head that the last transaction of this turn has shown. */
  #shown: Head | undefined

  constructor(desk: Desk, jobs: readonly ConsumeJob[]) {
    this.#desk = desk
    for (const job of jobs) {
      if ('commands' in job.input) this.#settlements.add(job as Job<SettleInput, readonly SettleResult[]>)
      else this.#wishes.add(job as Job<ClaimRequest, ClaimReply>)
    }
  }

  async run(): Promise<void> {
    try {
      let known = this.#desk.head.current
      while (!this.#settlements.isEmpty) known = await this.#step(this.#claimable(known) ? known : undefined)
      while (this.#wishes.wanted > 0) {
        if (this.#isDisputed(known)) known = await this.#hesitate()
        const head = await this.#prepared(known)
        if (head === undefined) break
        known = await this.#step(head)
      }
      this.#answer()
      if (this.#wishes.someUnwanted) await this.#answerUnwanted()
    } catch (error) {
      // What was granted has to be told, whatever came after it.
      this.#wishes.answerGranted()
      throw error
    }
  }

  /** An answer says that the store was reached: so it is asked, also for who does not want anything any more. */
  async #answerUnwanted(): Promise<void> {
    const { candidates, complete } = await this.#desk.readHead(1, 1)
    this.#wishes.answerUnwanted(this.#desk.meta.paused, complete && candidates.length === 0)
  }

  #claimable(head: Head | undefined): boolean {
    if (head === undefined || this.#isDisputed(head)) return false
    return head.candidates.length > 0 && head.unreadable.length === 0 && !isDue(head.dueAt)
  }

  get #isContended(): boolean {
    return performance.now() - this.#desk.lostClaimAt < CONTENDED_MS
  }

  /** These are few messages for many who wait: most of what was tried of late is lost. */
  #isDisputed(head: Head | undefined): boolean {
    const count = head?.candidates.length ?? 0
    return count > 0 && count <= DISPUTED && this.#isContended && this.#desk.lostShare > CROWDED
  }

  /** Of many who wait for few messages some are first; the others see that these are gone, and do not try. */
  async #hesitate(): Promise<undefined> {
    await sleep(Math.random() * HESITATION_MS * (this.#desk.lostShare - CROWDED))
  }

  /** A head with something to claim, after what had to be done before that; undefined where there is nothing. */
  async #prepared(known: Head | undefined): Promise<Head | undefined> {
    const desk = this.#desk
    let head = known
    for (;;) {
      // That it is paused may be over, and that there was nothing too.
      const isOld = desk.meta.paused || (head?.candidates.length === 0 && !this.#isKnownEmpty(head))
      if (head === undefined || isOld) {
        head = await desk.readHead(this.#wishes.wanted, windowFor(this.#wishes.wanted))
      }
      if (desk.meta.paused) return undefined
      const moved = await this.#tidied(head)
      if (!moved && head.candidates.length > 0) return head
      if (!moved && !(await recoverNowAndThen(desk))) return undefined
      head = undefined
    }
  }

  /** What was known before this turn may be long ago: that there was nothing then says nothing. */
  #isKnownEmpty(head: Head): boolean {
    return head === this.#shown && head.complete
  }

  /** Whether something was done that changes the head. */
  async #tidied({ unreadable, dueAt }: Head): Promise<boolean> {
    if (unreadable.length > 0) {
      await dropUnreadable(this.#desk, unreadable)
      return true
    }
    return isDue(dueAt) && (await maintain(this.#desk)) > 0
  }

  /** One transaction: settlements up to the limits, and claims if there is room. Answers the head after it. */
  async #step(known: Head | undefined): Promise<Head | undefined> {
    const desk = this.#desk
    const draft = desk.session.record.draft('itself')
    const change = desk.change(draft)
    const settled = this.#settlements.carryOut(desk, change)
    const cut = trimOwn(desk, change)
    // What comes back may be in front of what we know of.
    const { news } = change
    const mayClaim = settled.isAll && news?.ready !== true && !desk.meta.paused
    const claiming = mayClaim && known ? await this.#plan(known, draft, settled) : undefined
    if (claiming === undefined && settled.changesNothing) return this.#concludeUnchanged(settled)
    const ops = packed(change.finished(), MOST_GROUPS)
    const main = claiming && known ? claimOp(desk, known, claiming) : desk.session.putOf(draft)
    const look = this.#wishes.isEmpty ? [] : desk.lookOps(windowFor(this.#wishes.total), change.isInFront)
    const results = await this.#commit([...ops, main, ...look], cut, claiming)
    if (results === undefined) return undefined
    this.#settlements.conclude(desk, settled)
    if (results === 'repeated') return undefined
    const { answers, revision } = results
    desk.session.adopt(draft, revision)
    noteEnded(desk, change, results, cut)
    if (news?.dueAt) desk.head.noteDue(news.dueAt)
    if (claiming) await this.#claimed(claiming, answers[ops.length] as Result, revision)
    if (this.#wishes.isEmpty) return undefined
    this.#shown = desk.noteLook(answers.slice(ops.length + 1), revision)
    return this.#shown
  }

  async #claimed(claiming: Claiming, result: Result, revision: number): Promise<void> {
    const granted = grantedIn(result, claiming)
    if (granted === undefined) return this.#missed(claiming, result, revision)
    this.#desk.session.adopt(claiming.draft, revision)
    this.#desk.noteRace(false)
    await this.#grant(claiming, granted, revision)
  }

  async #concludeUnchanged(settled: Settled): Promise<undefined> {
    // An answer says that the store was reached.
    await this.#desk.read(get(this.#desk.session.key))
    this.#settlements.conclude(this.#desk, settled)
  }

  /** Undefined where nothing was done and all has to be made again. */
  async #commit(ops: readonly Op[], cut: Cut, claiming: Claiming | undefined) {
    const desk = this.#desk
    const outcome = await desk.session.commit({ compare: cutCompare(cut), success: ops, failure: [] })
    if (outcome.kind === 'done') return { answers: outcome.results, revision: outcome.revision }
    desk.prune()
    desk.outcomes.forgetOwn()
    if (outcome.kind !== 'repeated') return undefined
    desk.outcomes.known = undefined
    if (claiming) await this.#recall(claiming, outcome.record)
    return 'repeated' as const
  }

  async #plan(known: Head, draft: SessionRecord, settled: Settled): Promise<Claiming | undefined> {
    const { alike, terms } = this.#wishes
    if (terms === undefined) return undefined
    const leaseMs = leaseFor(terms.leaseMs)
    try {
      const holder = await this.#desk.leases.need(leaseMs / 1_000)
      return planClaims(known, alike, draft, holder, { ...terms, leaseMs }, this.#isContended)
    } catch (error) {
      // That there is no lease keeps nobody from settling.
      if (settled.results.length > 0) return undefined
      throw error
    }
  }

  #missed({ holder }: Claiming, result: Result, revision: number): void {
    const desk = this.#desk
    desk.lostClaims += 1
    // Where the rest held, another consumer was faster; else something has come in front.
    if (result.succeeded) desk.noteRace(true)
    this.#losses += 1
    const [meta, live] = missedIn(result)
    desk.noteMeta(only(meta), revision)
    if (only(live) === undefined) desk.leases.gone(holder)
    if (this.#losses >= MAX_LOSSES) this.#wishes.answer({ paused: false, nextDueMs: 0 })
  }

  async #grant(claiming: Claiming, { window, payloads }: Granted, revision: number): Promise<void> {
    const desk = this.#desk
    desk.head.reached(window)
    const rows = window.map(({ entry, key }) => ({ entry: handedOver(entry), place: placeOf(desk.keys.root, key) }))
    await this.#deliver(claiming, rows, revision, payloads)
  }

  /** The claims of a transaction whose answer was lost. */
  async #recall(claiming: Claiming, record: SessionRecord): Promise<void> {
    const desk = this.#desk
    if (!record.pages.has(claiming.page)) return
    const key = pageKey(desk.keys, desk.session.name, claiming.page)
    const { results } = await desk.patiently(() => desk.read(get(key)))
    const stored = only(results[0])
    if (stored === undefined) return
    const page = decode<Page>(stored.value, 'a page of claims')
    const rows = page.rows.map((row, index) => ({ entry: entryOf(row), place: page.places[index] ?? '' }))
    await this.#deliver(claiming, rows, stored.create)
  }

  async #deliver(
    { terms, holder, page }: Claiming,
    rows: readonly Claimed[],
    revision: number,
    known?: readonly (Buffer | undefined)[],
  ): Promise<void> {
    const desk = this.#desk
    const until = performance.now() + terms.leaseMs
    const { take: taken, consumer } = terms
    const granted = rows.map(({ entry, place }, index): Held => {
      const token = `${desk.session.name}.${page}.${index}`
      return { id: entry.id, token, page, index, entry, place, taken, consumer, holder, until }
    })
    // Before anything else can fail: so they lapse in time, whatever comes of them.
    for (const held of granted) desk.claims.set(held.token, held)
    desk.host.onClaims()
    const payloads = known ?? (await readPayloads(desk, rows))
    const lost: Held[] = []
    for (const [index, held] of granted.entries()) {
      const claim = claimOf(held, payloads[index], revision * 128 + index, terms.leaseMs)
      if (claim) this.#wishes.grant(claim)
      else lost.push(held)
    }
    this.#wishes.answerFull()
    if (lost.length > 0) await buryLost(desk, lost)
  }

  #answer(): void {
    const { meta, lapsesAt } = this.#desk
    const head = this.#desk.head.current
    const due: number[] = []
    if (head && head.dueAt > 0) due.push(Math.max(0, head.dueAt - now()))
    if (lapsesAt !== Number.POSITIVE_INFINITY) due.push(Math.max(0, lapsesAt - performance.now()))
    this.#wishes.answer({ paused: meta.paused, ...(due.length > 0 && { nextDueMs: Math.min(...due) }) })
  }
}
