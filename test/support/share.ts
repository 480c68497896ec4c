import { describe, it } from 'vitest'
import { IS_WHOLE } from './whole.js'

/** Every n-th scenario of a suite, from `first` on. */
export interface Share {
  readonly first: number
  readonly every: number
}

export const ALL: Share = { first: 0, every: 1 }

/** What a suite registers with, of which only a share is run. In one level: a part of a concern may be nothing. */
export function sharing({ first, every }: Share): {
  describe(title: string, body: () => void): void
  it(title: string, body: () => Promise<void>): void
} {
  let scenarios = 0
  let depth = 0
  return {
    describe: (title, body) => {
      depth += 1
      if (depth === 1) describe(title, body)
      else body()
      depth -= 1
    },
    it: (title, body) => {
      if (scenarios % every === first) it(title, body)
      scenarios += 1
    },
  }
}

/** A share where another file runs the rest on what is all but the same; all of it with `MILLRACE_WHOLE=1`. */
export function sampled(share: Share): Share {
  return IS_WHOLE ? ALL : share
}
