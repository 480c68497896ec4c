import { expect, it } from 'vitest'
import { addTallies, formatTally, readTally, tallyOf } from '../../scripts/tally.js'

function file(status: string, ...tests: string[]) {
  return { status, assertionResults: tests.map((each) => ({ status: each })) }
}

it('counts tests over all files', () => {
  const testResults = [file('passed', 'passed', 'passed'), file('failed', 'failed', 'passed')]
  expect(tallyOf({ testResults })).toEqual({ passed: 3, failed: 1, skipped: 0 })
})

it('counts whatever did not run as skipped', () => {
  expect(tallyOf({ testResults: [file('passed', 'skipped', 'todo', 'pending')] }).skipped).toBe(3)
})

it('counts a file that could not be loaded as a failure', () => {
  expect(tallyOf({ testResults: [file('failed'), file('failed', 'skipped')] })).toEqual({
    passed: 0,
    failed: 2,
    skipped: 1,
  })
})

it('counts a run without a report as a failure', () => {
  expect(readTally('/no/such/report.json')).toEqual({ passed: 0, failed: 1, skipped: 0 })
})

it('reads the same for people and machines', () => {
  expect(formatTally({ passed: 12, failed: 0, skipped: 0 })).toBe('12 passed, 0 failed')
  expect(formatTally({ passed: 12, failed: 1, skipped: 2 })).toBe('12 passed, 1 failed, 2 skipped')
})

it('adds the runs of two lanes', () => {
  const sum = addTallies({ passed: 1, failed: 2, skipped: 3 }, { passed: 10, failed: 20, skipped: 30 })
  expect(sum).toEqual({ passed: 11, failed: 22, skipped: 33 })
})
