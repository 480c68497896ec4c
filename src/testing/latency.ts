/**
 * How long the calls of a driver take in a marble test, and whether they are answered at all.
 */
import { TestScheduler } from 'rxjs/testing'
import { InvalidOptionError } from '../errors.js'
import type { Verb } from './faulty-backend.js'

/**
 * The course of a call: frames to the store and back, or a marble string that begins when the call is made.
 *
 * In a marble `s` is where the store runs the call, `r` where the answer arrives, `#` where the call fails as
 * unavailable. Without an `s` the store runs a call at once that is answered, and never sees one that is not.
 *
 * - `'--r'`: run at once, answered two frames later
 * - `'-s-r'`: on its way for a frame, run, answered after two more
 * - `'s-#'`: run, but the answer is lost, and the caller is told that the backend is unavailable
 * - `'--#'`: never reached the store
 * - `'s'`: run, never answered
 * - `'-'`: never reached the store, never answered
 */
export type Latency = string | { readonly request?: number; readonly reply?: number }

/** The course of the calls of each verb. A list gives each call its own; the last one is for all that follow. */
export type Latencies = Partial<Record<Verb, Latency | readonly Latency[]>>

/** A course in frames from the call. */
export interface Course {
  /** When the store runs it; absent when it never sees it. */
  readonly runsAt?: number
  /** When it ends for the caller; absent when it is never answered. */
  readonly endsAt?: number
  readonly fails: boolean
}

const AT_ONCE: Course = { runsAt: 0, endsAt: 0, fails: false }

/** The course of the `nth` call, from 0. */
export function courseOf(latency: Latency | readonly Latency[] | undefined, nth: number): Course {
  if (latency === undefined) return AT_ONCE
  if (isList(latency)) return courseOf(latency[Math.min(nth, latency.length - 1)], nth)
  if (typeof latency === 'string') return parse(latency)
  const { request = 0, reply = 0 } = latency
  return { runsAt: request, endsAt: request + reply, fails: false }
}

function isList(latency: Latency | readonly Latency[]): latency is readonly Latency[] {
  return Array.isArray(latency)
}

function parse(marbles: string): Course {
  const course: { runsAt?: number; endsAt?: number; fails: boolean } = { fails: false }
  for (const { frame, notification } of TestScheduler.parseMarbles(marbles, undefined, undefined, false, true)) {
    const { kind } = notification
    if (kind === 'C') continue
    const mark = kind === 'E' ? '#' : (notification as { readonly value: unknown }).value
    if (mark === 's') course.runsAt = frame
    else if (mark === 'r' || mark === '#') course.endsAt = frame
    else throw new InvalidOptionError('latencies', marbles, "a marble string of 's', 'r' and '#'")
    course.fails ||= mark === '#'
  }
  if (course.endsAt !== undefined && !course.fails) course.runsAt ??= 0
  return course
}
