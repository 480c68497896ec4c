/** What is known of how many outcomes a queue keeps. */
export class OutcomeCount {
  /** Undefined until they were counted. */
  known: number | undefined
  /** Our own since all were counted. */
  since = 0

  ended(count: number): void {
    this.since += count
    if (this.known !== undefined) this.known += count
  }

  forgot(count: number): void {
    if (this.known !== undefined) this.known -= count
  }
}
