/** A page of ids whose outcomes are kept. */
export interface EndedPage {
  readonly key: string
  readonly mod: number
  readonly at: number
  readonly ids: readonly string[]
}

/** What a session knows of the outcomes that a queue keeps. */
export class OutcomeCount {
  /** How many, of all sessions; undefined until they were counted. */
  known: number | undefined
  /** Our own since all were counted. */
  since = 0
  /** None that is kept has ended before, as far as the clocks of all agree. */
  oldestAt = Number.NEGATIVE_INFINITY
  /** Of all but those of {@link own} none has ended before, when that was looked for last. */
  othersAt = Number.NEGATIVE_INFINITY
  /** Pages of this session, the oldest first, as far as it remembers them. */
  own: EndedPage[] = []

  ended(count: number): void {
    this.since += count
    if (this.known !== undefined) this.known += count
  }

  forgot(count: number): void {
    if (this.known !== undefined) this.known -= count
  }

  /** Ours have been changed by another. */
  forgetOwn(): void {
    this.own = []
  }
}
