/** Counts of a test run, read from a report in the form that jest gave the world. */
import { existsSync, readFileSync } from 'node:fs'

export interface Tally {
  readonly passed: number
  readonly failed: number
  readonly skipped: number
}

interface Report {
  readonly testResults: readonly {
    readonly status: string
    readonly assertionResults: readonly { readonly status: string }[]
  }[]
}

/** The counts of a report file. No report is one failure: the run broke before it could say more. */
export function readTally(path: string): Tally {
  if (!existsSync(path)) return { passed: 0, failed: 1, skipped: 0 }
  return tallyOf(JSON.parse(readFileSync(path, 'utf8')) as Report)
}

export function tallyOf({ testResults }: Report): Tally {
  const statuses = testResults.flatMap(({ status, assertionResults }) => {
    const own = assertionResults.map((each) => each.status)
    // A file that failed without a failed test could not be loaded: none of its tests ran.
    return status === 'failed' && !own.includes('failed') ? [...own, 'failed'] : own
  })
  const count = (wanted: string) => statuses.filter((status) => status === wanted).length
  const [passed, failed] = [count('passed'), count('failed')]
  return { passed, failed, skipped: statuses.length - passed - failed }
}

export function addTallies(one: Tally, other: Tally): Tally {
  return {
    passed: one.passed + other.passed,
    failed: one.failed + other.failed,
    skipped: one.skipped + other.skipped,
  }
}

export function formatTally({ passed, failed, skipped }: Tally): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`
}
