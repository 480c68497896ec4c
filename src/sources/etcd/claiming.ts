/**
 * Settlements and claims, of one turn in one transaction.
 */
import type { Claim, ClaimReply, ClaimRequest, SettleCommand, SettleResult } from '../../driver.js'
import { type Change, expiryKey, pageKey } from './change.js'
import type { Compare, Op, Result } from './client.js'
import type { Candidate, Desk, Head, Held } from './desk.js'
import { decodeMessage, type Entry, type EntryRow, entryOf, entryRow } from './entry.js'
import { after } from './keys.js'
import type { Job } from './lane.js'
import type { Holder } from './leases.js'
import { dropUnreadable, isDue, maintain } from './maintenance.js'
import { trimmedOwn, trimOwn } from './outcomes.js'
import { leaseFor, type Page } from './page.js'
import { decode, encode } from './record.js'
import { recoverNowAndThen } from './recovery.js'
import type { SessionRecord } from './session-record.js'
import { settleOne } from './settling.js'
import { now } from './time.js'
import { bytesOf, get, modIs, nested, only, packed, present, put, remove, removeRange, untouchedSince } from './txn.js'

export interface SettleInput {
  readonly commands: readonly SettleCommand[]
}

export type ConsumeInput = SettleInput | ClaimRequest
export type ConsumeJob = Job<ConsumeInput, unknown>

/** Claims of one transaction: each costs a condition, of which there may be so many on a path. */
const MAX_CLAIMS = 100
/** Those with a time to live cost an operation more. */
const MAX_EXPIRING_CLAIMS = 45
/** Other windows that are tried where another consumer took the first. */
const OTHER_WINDOWS = 8
/** So many claims are few: other windows cost little then. */
const FEW = 4
const MAX_SETTLEMENTS = 100
/** Operations of settlements on the level of claims, which need the rest of the path. */
const MOST_GROUPS = 14
const MAX_SETTLEMENT_BYTES = 1_000_000
/** Payloads are read along with their claims up to so many bytes; beyond that apart, page by page. */
const MAX_READ_BYTES = 1_000_000
/** How often what was lost to others is tried again before it is given back. */
const MAX_LOSSES = 50

interface Wish {
  readonly job: Job<ClaimRequest, ClaimReply>
  readonly claims: Claim[]
}

interface Settlement {
  readonly command: SettleCommand
  readonly put: (result: SettleResult) => void
}

/** Carries out what was asked for together. */
export async function consume(desk: Desk, jobs: readonly ConsumeJob[]): Promise<void> {
  await new Turn(desk, jobs).run()
}

class Turn {
  readonly #desk: Desk
  readonly #settlements: Settlement[] = []
  readonly #wishes: Wish[] = []
  #losses = 0

  constructor(desk: Desk, jobs: readonly ConsumeJob[]) {
    this.#desk = desk
    for (const job of jobs) {
      if ('commands' in job.input) this.#addSettlements(job as Job<SettleInput, readonly SettleResult[]>)
      else this.#wishes.push({ job: job as Job<ClaimRequest, ClaimReply>, claims: [] })
    }
  }

  async run(): Promise<void> {
    for (const { job } of this.#wishes)
      if (job.input.signal?.aborted) job.asked.succeed({ ...NOTHING, withdrawn: true })
    try {
      await this.#work()
    } catch (error) {
      // What was granted has to be told, whatever came after it.
      for (const { job, claims } of this.#wishes) if (claims.length > 0) job.asked.succeed({ claims, paused: false })
      throw error
    }
  }

  async #work(): Promise<void> {
    const { head } = this.#desk
    let known = head !== undefined && head.candidates.length > 0 ? head : undefined
    while (this.#settlements.length > 0 || this.#wanted > 0) {
      if (this.#settlements.length === 0 && known === undefined) known = await this.#look()
      if (known && known.unreadable.length > 0 && this.#settlements.length === 0) {
        await dropUnreadable(this.#desk, known.unreadable)
        known = undefined
        continue
      }
      if (known && isDue(known.dueAt)) {
        if (this.#settlements.length > 0) known = undefined
        else if (await maintain(this.#desk)) {
          known = undefined
          continue
        }
      }
      if (this.#settlements.length === 0 && (known?.candidates.length ?? 0) === 0) {
        if (known?.complete && !(await recoverNowAndThen(this.#desk))) break
        known = undefined
        continue
      }
      if (this.#settlements.length === 0 && this.#desk.meta.paused) break
      known = await this.#step(known)
    }
    this.#answer()
  }

  get #open(): Wish[] {
    return this.#wishes.filter(({ job, claims }) => job.asked.isOpen && claims.length < job.input.max)
  }

  /** Those that can share a page of claims with the first. */
  #alike(): Wish[] {
    const open = this.#open
    const terms = open[0]?.job.input
    return open.filter(({ job: { input } }) => {
      return input.leaseMs === terms?.leaseMs && input.take === terms.take && input.consumer === terms.consumer
    })
  }

  get #wanted(): number {
    return this.#open.reduce((sum, { job, claims }) => sum + job.input.max - claims.length, 0)
  }

  #look(): Promise<Head> {
    return this.#desk.readHead(this.#wanted, windowFor(this.#wanted))
  }

  /** One transaction: settlements up to the limits, and claims if there is room. */
  async #step(known: Head | undefined): Promise<Head | undefined> {
    const desk = this.#desk
    const draft = desk.session.record.draft('itself')
    const change = desk.change(draft)
    const settled = this.#settle(change)
    const isLast = settled.length === this.#settlements.length
    const changesNothing = settled.every(({ result: { state } }) => state === 'stale' || state === 'refused')
    const trim = trimOwn(desk, change)
    // What comes back may be in front of what we know of.
    const mayClaim = isLast && change.news?.ready !== true && !desk.meta.paused
    const claiming = mayClaim && known ? await this.#claiming(known, draft) : undefined
    if (claiming === undefined && changesNothing) {
      // An answer says that the store was reached.
      if (settled.length > 0) await desk.read(get(desk.session.key))
      this.#conclude(settled)
      return undefined
    }
    const ops = packed(change.finished(), MOST_GROUPS)
    const look =
      this.#wishes.length > 0
        ? desk.headOps(windowFor(this.#wishes.reduce((sum, { job }) => sum + job.input.max, 0)))
        : []
    const outcome = await desk.session.commit({
      compare: trim.pages.map(({ key, mod }) => modIs(key, mod)),
      then: [...ops, claiming?.op ?? desk.session.putOf(draft), ...look],
      otherwise: [],
    })
    if (outcome.kind === 'changed') {
      desk.prune()
      return undefined
    }
    if (outcome.kind === 'lost') {
      desk.outcomes.forgetOwn()
      return undefined
    }
    this.#conclude(settled)
    if (outcome.kind === 'repeated') {
      desk.outcomes.known = undefined
      desk.outcomes.forgetOwn()
      if (claiming) await this.#recall(claiming, outcome.record)
      return undefined
    }
    const granted = claiming && grantedIn(outcome.results[ops.length] as Result, claiming)
    desk.session.adopt(granted ? claiming.draft : draft, outcome.revision)
    trimmedOwn(desk, change, trim, outcome.revision)
    if (change.news?.dueAt) desk.noteDue(change.news.dueAt)
    if (claiming && granted) await this.#grant(claiming, granted, outcome.revision)
    else if (claiming) this.#missed(claiming, outcome.results[ops.length] as Result)
    return look.length === 0 ? undefined : desk.noteHead(outcome.results.slice(ops.length + 1), outcome.revision)
  }

  #addSettlements(job: Job<SettleInput, readonly SettleResult[]>): void {
    const { commands } = job.input
    const results: SettleResult[] = new Array(commands.length)
    let open = commands.length
    if (open === 0) job.asked.succeed([])
    commands.forEach((command, index) => {
      const put = (result: SettleResult) => {
        results[index] = result
        open -= 1
        if (open === 0) job.asked.succeed(results)
      }
      this.#settlements.push({ command, put })
    })
  }

  #settle(change: Change): { readonly settlement: Settlement; readonly result: SettleResult }[] {
    const settled: { settlement: Settlement; result: SettleResult }[] = []
    const touched = new Set<string>()
    let bytes = 0
    for (const settlement of this.#settlements) {
      const { command } = settlement
      if (settled.length === MAX_SETTLEMENTS || touched.has(command.token)) break
      touched.add(command.token)
      const from = change.ops.length
      const result = settleOne(this.#desk, change, command)
      bytes += bytesOf({ compare: [], then: change.ops.slice(from), otherwise: [] })
      settled.push({ settlement, result })
      if (bytes > MAX_SETTLEMENT_BYTES) break
    }
    return settled
  }

  #conclude(settled: readonly { readonly settlement: Settlement; readonly result: SettleResult }[]): void {
    this.#settlements.splice(0, settled.length)
    for (const { settlement, result } of settled) {
      if (result.state !== 'stale' && result.state !== 'refused') this.#desk.claims.delete(settlement.command.token)
      settlement.put(result)
    }
  }

  async #claiming(known: Head, draft: SessionRecord): Promise<Claiming | undefined> {
    const wishes = this.#alike()
    const [first] = wishes
    const candidates = alive(known)
    if (first === undefined || candidates.length === 0) return undefined
    const { input } = first.job
    const wanted = wishes.reduce((sum, { job, claims }) => sum + job.input.max - claims.length, 0)
    const leaseMs = leaseFor(input.leaseMs)
    const holder = await this.#desk.leases.need(leaseMs / 1_000)
    const expiring = candidates.some(({ entry }) => entry.expiresAt > 0)
    const size = Math.min(wanted, candidates.length, expiring ? MAX_EXPIRING_CLAIMS : MAX_CLAIMS)
    const windows = windowsOf(candidates, size)
    const claimed = draft.draft('another')
    const page = draft.turn
    claimed.pages.set(page, { lease: holder.id, size, settled: 0n, cancelled: 0n })
    claimed.count('ready', -size)
    claimed.count('claimed', size)
    const claiming: Claiming = { wishes, holder, leaseMs, page, draft: claimed, windows, op: NO_OP }
    return { ...claiming, op: claimOp(this.#desk, known, claiming, draft) }
  }

  #missed({ holder }: Claiming, result: Result): void {
    const desk = this.#desk
    desk.lostClaims += 1
    this.#losses += 1
    const [meta, live] = leafOf(result).results.slice(1)
    desk.noteMeta(only(meta))
    if (only(live) === undefined) desk.leases.gone(holder)
    if (this.#losses >= MAX_LOSSES)
      for (const { job } of this.#open) job.asked.succeed({ claims: [], paused: false, nextDueMs: 0 })
  }

  async #grant(claiming: Claiming, granted: Granted, revision: number): Promise<void> {
    const payloads = granted.payloads ?? (await readPayloads(this.#desk, granted.window))
    const rows = granted.window.map(({ entry, key }) => ({ entry: handedOver(entry), place: this.#placeOf(key) }))
    this.#deliver(claiming, rows, payloads, revision)
  }

  #placeOf(key: string): string {
    return `r/${key.slice(this.#desk.keys.ready.length)}`
  }

  /** The claims of a transaction whose answer was lost. */
  async #recall(claiming: Claiming, record: SessionRecord): Promise<void> {
    const desk = this.#desk
    desk.prune()
    if (!record.pages.has(claiming.page)) return
    const { results } = await desk.patiently(() => desk.read(get(pageKey(desk.keys, desk.session.name, claiming.page))))
    const stored = only(results[0])
    if (stored === undefined) return
    const page = decode<Page>(stored.value, 'a page of claims')
    const rows = page.rows.map((row, index) => ({ entry: entryOf(row), place: page.places[index] ?? '' }))
    const payloads = await readPayloads(desk, rows)
    this.#deliver(claiming, rows, payloads, stored.create)
  }

  #deliver(
    { wishes, holder, leaseMs, page }: Claiming,
    rows: readonly { readonly entry: Held['entry']; readonly place: string }[],
    payloads: readonly (Buffer | undefined)[],
    revision: number,
  ): void {
    const desk = this.#desk
    const until = performance.now() + leaseMs
    rows.forEach(({ entry, place }, index) => {
      const wish = wishes.find(({ job, claims }) => claims.length < job.input.max) as Wish
      const { take: taken, consumer } = wish.job.input
      const token = `${desk.session.name}.${page}.${index}`
      const held: Held = { id: entry.id, token, page, index, entry, place, taken, consumer, holder, until }
      desk.claims.set(token, held)
      wish.claims.push(claimOf(held, payloads[index], revision * 128 + index, leaseMs))
    })
    desk.host.onClaims()
    for (const { job, claims } of wishes)
      if (claims.length === job.input.max) job.asked.succeed({ claims, paused: false })
  }

  #answer(): void {
    const { meta, head, lapsesAt } = this.#desk
    const due: number[] = []
    if (head && head.dueAt > 0) due.push(Math.max(0, head.dueAt - now()))
    if (lapsesAt !== Number.POSITIVE_INFINITY) due.push(Math.max(0, lapsesAt - performance.now()))
    const next = due.length === 0 ? {} : { nextDueMs: Math.min(...due) }
    for (const { job, claims } of this.#wishes) job.asked.succeed({ claims, paused: meta.paused, ...next })
  }
}

const NOTHING: ClaimReply = { claims: [], paused: false }
const NO_OP: Op = nested([], [])

interface Claiming {
  readonly wishes: readonly Wish[]
  readonly holder: Holder
  readonly leaseMs: number
  readonly page: number
  /** The record with the claims. */
  readonly draft: SessionRecord
  /** What is claimed: the first of these that is as it was seen. */
  readonly windows: readonly (readonly Candidate[])[]
  readonly op: Op
}

interface Granted {
  readonly window: readonly Candidate[]
  readonly payloads: readonly (Buffer | undefined)[] | undefined
}

function handedOver(entry: Entry): Entry {
  return { ...entry, deliveries: entry.deliveries + 1 }
}

function windowFor(wanted: number): number {
  return wanted <= FEW ? wanted * OTHER_WINDOWS : Math.min(MAX_CLAIMS, wanted) + OTHER_WINDOWS
}

function alive({ candidates }: Head): readonly Candidate[] {
  const at = now()
  const end = candidates.findIndex(({ entry }) => entry.expiresAt > 0 && entry.expiresAt <= at)
  return end < 0 ? candidates : candidates.slice(0, end)
}

/** The first messages, and where it is few that are wanted, those after them, for when others were faster. */
function windowsOf(candidates: readonly Candidate[], size: number): Candidate[][] {
  const windows: Candidate[][] = []
  const most = size > FEW ? 1 : OTHER_WINDOWS
  for (let from = 0; windows.length < most && from + size <= candidates.length; from += size) {
    windows.push(candidates.slice(from, from + size))
  }
  return windows
}

/** The transaction inside the transaction that claims one of the windows. */
function claimOp(desk: Desk, known: Head, claiming: Claiming, without: SessionRecord): Op {
  const { keys, meta, session } = desk
  const { holder, windows } = claiming
  const live = `${keys.lives}${holder.id}`
  const leaf: Op[] = [session.putOf(without), get(keys.meta), get(live)]
  const last = windows.at(-1)?.at(-1) as Candidate
  let otherwise: Op[] = leaf
  for (const window of [...windows].reverse()) {
    const compare = window.map(({ key, mod }) => modIs(key, mod))
    otherwise = [nested(compare, grantOps(desk, claiming, window), otherwise)]
  }
  const general: Compare[] = [
    modIs(keys.meta, meta.mod),
    present(live),
    untouchedSince(known.revision, keys.ready, after(last.key)),
  ]
  return nested(general, otherwise, leaf)
}

function grantOps({ keys, session, meta }: Desk, claiming: Claiming, window: readonly Candidate[]): Op[] {
  const { wishes, leaseMs, page, draft } = claiming
  const { consumer, take } = (wishes[0] as Wish).job.input
  const stored: Page = {
    consumer,
    taken: take,
    leaseMs,
    at: now(),
    epoch: meta.epoch,
    rows: window.map(({ entry }) => entryRow(handedOver(entry))),
    places: window.map(({ key }) => `r/${key.slice(keys.ready.length)}`),
  }
  const first = window[0] as Candidate
  const last = window.at(-1) as Candidate
  const ops: Op[] = [
    removeRange(first.key, after(last.key)),
    put(pageKey(keys, session.name, page), encode(stored)),
    session.putOf(draft),
  ]
  for (const { entry } of window) {
    if (entry.expiresAt > 0) ops.push(remove(expiryKey(keys, entry)))
  }
  if (readsAlong(window)) for (const { entry } of window) ops.push(get(`${keys.messages}${entry.id}`))
  return ops
}

function readsAlong(window: readonly Candidate[]): boolean {
  return window.reduce((bytes, { entry }) => bytes + entry.size, 0) <= MAX_READ_BYTES
}

/** Which window was granted, from the answers of the transactions inside of each other. */
function grantedIn(result: Result, { windows }: Claiming): Granted | undefined {
  if (!result.succeeded) return undefined
  let at = result.results[0]
  for (const window of windows) {
    if (at?.succeeded) {
      const gets = at.results.slice(at.results.length - window.length)
      return { window, payloads: readsAlong(window) ? gets.map((one) => only(one)?.value) : undefined }
    }
    at = at?.results[0]
  }
  return undefined
}

/** The answers of the branch in which nothing was claimed. */
function leafOf(result: Result): Result {
  let leaf = result
  while (leaf.results[0]?.results.length) leaf = leaf.results[0] as Result
  return leaf
}

async function readPayloads(
  desk: Desk,
  rows: readonly { readonly entry: Held['entry'] }[],
): Promise<(Buffer | undefined)[]> {
  const payloads: (Buffer | undefined)[] = []
  for (let from = 0; from < rows.length; ) {
    let bytes = 0
    let to = from
    while (to < rows.length && (to === from || bytes + (rows[to]?.entry.size ?? 0) <= MAX_READ_BYTES)) {
      bytes += rows[to]?.entry.size ?? 0
      to += 1
    }
    const gets = rows.slice(from, to).map(({ entry }) => get(`${desk.keys.messages}${entry.id}`))
    const { results } = await desk.patiently(() => desk.read(...gets))
    payloads.push(...results.map((result) => only(result)?.value))
    from = to
  }
  return payloads
}

function claimOf(held: Held, stored: Buffer | undefined, fence: number, leaseMs: number): Claim {
  const { entry, id, token } = held
  const { value, bytes } = payloadOf(stored)
  return {
    id,
    token,
    fence,
    bytes,
    attempt: entry.attempt,
    deliveryCount: entry.deliveries,
    priority: entry.priority,
    ...(value.key !== undefined && { key: value.key }),
    ...(value.headers !== undefined && { headers: value.headers }),
    enqueuedAt: value.enqueuedAt,
    leaseMs,
    leaseExpiresAt: now() + leaseMs,
  }
}

/** What is gone or cannot be read is handed over without a byte, which no codec takes: so it goes to the dead letters. */
function payloadOf(stored: Buffer | undefined): ReturnType<typeof decodeMessage> {
  try {
    return stored === undefined ? LOST : decodeMessage(stored)
  } catch {
    return LOST
  }
}

const LOST: ReturnType<typeof decodeMessage> = {
  value: { priority: 0, enqueuedAt: 0, size: 0, place: '' },
  bytes: new Uint8Array(0),
}
