import { atMostOnce } from './at-most-once.js'
import { basics } from './basics.js'
import { cancelling } from './cancelling.js'
import { closing } from './closing.js'
import { concurrency } from './concurrency.js'
import { crashes } from './crashes.js'
import { deadLetterChanges } from './dead-letter-changes.js'
import { deadLetters } from './dead-letters.js'
import { delays } from './delays.js'
import { depths } from './depths.js'
import { endings } from './endings.js'
import { enqueueing } from './enqueueing.js'
import { expiry } from './expiry.js'
import { featureFlags } from './feature-flags.js'
import { forwarding } from './forwarding.js'
import { handOvers } from './hand-overs.js'
import { type Concern, type ConformanceOptions, registerConcern } from './kit.js'
import { lapsing } from './lapsing.js'
import { leaseLimits } from './lease-limits.js'
import { leaving } from './leaving.js'
import { limits } from './limits.js'
import { listing } from './listing.js'
import { lostReplies } from './lost-replies.js'
import { messageCancel } from './message-cancel.js'
import { outages } from './outages.js'
import { outcomes } from './outcomes.js'
import { networkPartitions } from './partitions-of-the-network.js'
import { pausing } from './pausing.js'
import { payloads } from './payloads.js'
import { priorities } from './priorities.js'
import { purging } from './purging.js'
import { requeueing } from './requeueing.js'
import { settings } from './settings.js'
import { settling } from './settling.js'
import { sweeping } from './sweeping.js'
import { unknownOutcomes } from './unknown-outcomes.js'
import { waiting } from './waiting.js'

/**
 * Registers the conformance suite for a backend: every scenario that a backend must get right, by concern.
 *
 * Works with any test runner that has `describe` and `it`; assertions are those of Node.
 *
 * @example
 * ```ts
 * conformance({ name: 'memory', backend: () => memoryBackend(), describe, it })
 * ```
 */
export function conformance(options: ConformanceOptions): void {
  options.describe(`conformance of the ${options.name} backend`, () => {
    for (const concern of CONCERNS) registerConcern(options, concern)
  })
}

const CONCERNS: readonly Concern[] = [
  basics,
  waiting,
  cancelling,
  leaving,
  settling,
  enqueueing,
  requeueing,
  lapsing,
  deadLetters,
  deadLetterChanges,
  crashes,
  sweeping,
  unknownOutcomes,
  delays,
  priorities,
  concurrency,
  closing,
  pausing,
  messageCancel,
  outcomes,
  payloads,
  purging,
  depths,
  outages,
  networkPartitions,
  leaseLimits,
  settings,
  limits,
  expiry,
  atMostOnce,
  forwarding,
  listing,
  endings,
  handOvers,
  lostReplies,
  featureFlags,
]
