/**
 * Who is present, in the order in which they came. Joining and leaving cost the same however many there are.
 *
 * A `Set` would do as well, were it not for those that pass through by the million: each time a set makes room, its old
 * table keeps a reference to the new one. Once a single table has grown old, every later one, with all that it held,
 * outlives the collections of young objects, and the heap grows until a full collection comes. Members are therefore
 * linked to each other, and a member that leaves is linked to nothing.
 */

/** What a member keeps for the one roster that it is on. */
export interface Rostered<T> {
  roster: object | undefined
  before: T | undefined
  after: T | undefined
}

export class Roster<T extends Rostered<T>> implements Iterable<T> {
  size = 0
  /** The one that has been here longest. */
  first: T | undefined
  private last: T | undefined

  add(member: T): void {
    member.roster = this
    member.before = this.last
    if (this.last) this.last.after = member
    else this.first = member
    this.last = member
    this.size += 1
  }

  /** Whether it was on this roster. */
  delete(member: T): boolean {
    if (member.roster !== this) return false
    const { before, after } = member
    if (before) before.after = after
    else this.first = after
    if (after) after.before = before
    else this.last = before
    member.roster = undefined
    member.before = undefined
    member.after = undefined
    this.size -= 1
    return true
  }

  /** Goes through them in order. Nobody may leave meanwhile: take a copy to let them. */
  *[Symbol.iterator](): Iterator<T> {
    for (let member = this.first; member; member = member.after) yield member
  }
}
