/**
 * Which member of a cluster is asked. One at a time, as long as it answers: then what is asked one after the other is
 * answered in that order, and a member that does not answer costs one deadline and not one in three.
 */

/** A member that has not answered is left alone for so long, while there are others. */
const SUSPECT_MS = 5_000

export interface Member<C> {
  readonly client: C
  /** Ends what is open to it. */
  readonly open: Set<(error: Error) => void>
  suspectUntil: number
}

export class Members<C> {
  readonly all: readonly Member<C>[]
  #at = 0

  constructor(clients: readonly C[]) {
    this.all = clients.map((client) => ({ client, open: new Set(), suspectUntil: 0 }))
    // Clients of one list are spread over the members.
    this.#at = Math.floor(Math.random() * clients.length)
  }

  /** The one to ask now. */
  get current(): Member<C> {
    return this.all[this.#at] as Member<C>
  }

  /** It did not answer: another is asked from now on, and what is open to it is over. */
  suspect(member: Member<C>, error: Error): void {
    if (this.all.length === 1) return
    const at = performance.now()
    member.suspectUntil = at + SUSPECT_MS
    if (member === this.current) this.#at = this.#next(at)
    for (const end of [...member.open]) end(error)
  }

  /** The next that is not suspected, or the one that was first to be. */
  #next(at: number): number {
    const order = this.all.map((_, index) => (this.#at + 1 + index) % this.all.length)
    const trusted = order.find((index) => (this.all[index] as Member<C>).suspectUntil <= at)
    if (trusted !== undefined) return trusted
    return (
      order.toSorted((one, other) => (this.all[one]?.suspectUntil ?? 0) - (this.all[other]?.suspectUntil ?? 0))[0] ?? 0
    )
  }
}
