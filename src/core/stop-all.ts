import type { Released } from '../events.js'
import { Eventual } from '../eventual.js'
import type { StopOptions } from './consumer.js'
import type { Member } from './scope.js'

/** Stops all of them side by side and adds up their accounts. */
export function stopAll(members: Iterable<Pick<Member, 'stop'>>, options: StopOptions): Eventual<Released> {
  return Eventual.all([...members].map((member) => member.stop(options))).then(addUp)
}

export function addUp(accounts: readonly Released[]): Released {
  const sum = { released: 0, settledDuringGrace: 0, abandoned: 0 }
  for (const account of accounts) {
    sum.released += account.released
    sum.settledDuringGrace += account.settledDuringGrace
    sum.abandoned += account.abandoned
  }
  return sum
}
