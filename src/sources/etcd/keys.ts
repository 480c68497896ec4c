/**
 * The names of keys. All keys of a queue begin with its name, escaped, and a letter for what they hold.
 */

const ROOT = 'millrace/'

/** Keys of one queue. */
export interface Keys {
  /** The beginning of them all. */
  readonly root: string
  /** Settings, paused, the version of the layout. */
  readonly meta: string
  /** Where the next arrival stands; written by each transaction in which something arrives. */
  readonly arrivals: string
  /** Put when something becomes ready that may come before what others take for the first. */
  readonly front: string
  /** What waiters have to hear of and no other key tells. */
  readonly news: string
  /** The four above and the markers of leases: what is watched. */
  readonly watched: string
  readonly lives: string
  readonly messages: string
  readonly places: string
  readonly ready: string
  readonly delayed: string
  readonly expiring: string
  readonly sessions: string
  /** The session that stands for all that are over. */
  readonly base: string
  readonly claims: string
  readonly dead: string
  readonly deaths: string
  readonly ends: string
}

/** What keys of this queue are called. `root` is the part that all share. */
export function keysOf(queue: string): Keys {
  const at = `${ROOT}${escaped(queue)}/`
  return {
    root: at,
    meta: `${at}w/meta`,
    arrivals: `${at}w/arrivals`,
    front: `${at}w/front`,
    news: `${at}w/news`,
    watched: `${at}w/`,
    lives: `${at}w/live/`,
    messages: `${at}m/`,
    places: `${at}p/`,
    ready: `${at}r/`,
    delayed: `${at}d/`,
    expiring: `${at}t/`,
    sessions: `${at}s/`,
    base: `${at}s/0`,
    claims: `${at}c/`,
    dead: `${at}x/`,
    deaths: `${at}y/`,
    ends: `${at}e/`,
  }
}

/** A name is one step of a path, whatever it holds. */
function escaped(queue: string): string {
  return encodeURIComponent(queue)
}

/** The end of the range of all keys that begin so; the prefix ends with a slash. */
export function endOf(prefix: string): string {
  return `${prefix.slice(0, -1)}0`
}

/** The first key after this one. */
export function after(key: string): string {
  return `${key}\0`
}

/** A whole number as text that sorts as the number does. */
export function fixed(value: number, digits: number): string {
  return Math.max(0, Math.round(value)).toString(16).padStart(digits, '0')
}

/** Digits of an instant in milliseconds, and of any count up to 2^53. */
export const INSTANT_DIGITS = 12
export const COUNT_DIGITS = 14

/** Where a message stands in the order of arrival: the number of the transaction and its place within that. */
export interface Arrival {
  readonly turn: number
  readonly index: number
}

export function arrivalText({ turn, index }: Arrival): string {
  return `${fixed(turn, COUNT_DIGITS)}${fixed(index, 3)}`
}
