/**
 * Settlements that wait to be carried out, of one or several requests.
 */
import type { SettleCommand, SettleResult } from '../../driver.js'
import type { Change } from './change.js'
import type { Desk } from './desk.js'
import type { Job } from './lane.js'
import { settleOne } from './settling.js'
import { bytesOf } from './txn.js'

export interface SettleInput {
  readonly commands: readonly SettleCommand[]
}

interface Settlement {
  readonly command: SettleCommand
  readonly answer: (result: SettleResult) => void
}

/** The first of them, carried out on a change in the making. */
export interface Settled {
  readonly results: readonly SettleResult[]
  /** No other waits. */
  readonly isAll: boolean
  readonly changesNothing: boolean
}

const MAX_SETTLEMENTS = 100
const MAX_BYTES = 1_000_000

export class Settlements {
  readonly #waiting: Settlement[] = []

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  add({ input: { commands }, asked }: Job<SettleInput, readonly SettleResult[]>): void {
    const results: SettleResult[] = new Array(commands.length)
    let open = commands.length
    if (open === 0) asked.succeed([])
    commands.forEach((command, index) => {
      const answer = (result: SettleResult) => {
        results[index] = result
        open -= 1
        if (open === 0) asked.succeed(results)
      }
      this.#waiting.push({ command, answer })
    })
  }

  /** Carries out as many as one transaction takes; two of one claim are not among them. */
  carryOut(desk: Desk, change: Change): Settled {
    const results: SettleResult[] = []
    const touched = new Set<string>()
    let bytes = 0
    for (const { command } of this.#waiting) {
      if (results.length === MAX_SETTLEMENTS || touched.has(command.token) || bytes > MAX_BYTES) break
      touched.add(command.token)
      const from = change.ops.length
      results.push(settleOne(desk, change, command))
      bytes += bytesOf({ compare: [], success: change.ops.slice(from), failure: [] })
    }
    return { results, isAll: results.length === this.#waiting.length, changesNothing: !results.some(isChange) }
  }

  /** They were carried out for good. */
  conclude({ claims }: Desk, { results }: Settled): void {
    const done = this.#waiting.splice(0, results.length)
    done.forEach(({ command, answer }, index) => {
      const result = results[index] as SettleResult
      if (isChange(result)) claims.delete(command.token)
      answer(result)
    })
  }
}

function isChange({ state }: SettleResult): boolean {
  return state !== 'stale' && state !== 'refused'
}
