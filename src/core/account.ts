import type { Released, SettledAs, Summary } from '../events.js'

/** What became of everything that one consumer claimed. */
export class Account {
  private readonly sums = {
    acked: 0,
    requeued: 0,
    deadLettered: 0,
    lost: 0,
    released: 0,
    settledDuringGrace: 0,
    abandoned: 0,
  }

  get summary(): Summary {
    return { ...this.sums }
  }

  get released(): Released {
    const { released, settledDuringGrace, abandoned } = this.sums
    return { released, settledDuringGrace, abandoned }
  }

  /** A settlement was confirmed; `late` when that was after the cancel. */
  settled(as: SettledAs, late: boolean): void {
    if (as === 'acked') this.sums.acked += 1
    else if (as === 'requeued') this.sums.requeued += 1
    else if (as === 'dead-lettered') this.sums.deadLettered += 1
    else if (as === 'released') this.sums.released += 1
    if (late && as !== 'released') this.sums.settledDuringGrace += 1
  }

  lost(): void {
    this.sums.lost += 1
  }

  /** So many claims could not be given back for certain. */
  abandoned(count: number): void {
    this.sums.abandoned += count
  }
}
