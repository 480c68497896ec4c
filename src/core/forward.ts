/**
 * Settling a claim together with storing a message elsewhere.
 */
import type { Settlement } from '../delivery.js'
import type { CarriedMessage, NewMessage } from '../driver.js'
import { InvalidOptionError } from '../errors.js'
import { Eventual } from '../eventual.js'
import { checkOptions } from '../options.js'
import type { EnqueueOptions, Queue } from '../queue.js'
import { coreOf } from './core-of.js'
import type { Command, HeldClaim } from './held-claim.js'
import type { QueueCore } from './queue-core.js'
import { enqueueOptions } from './rules.js'

/**
 * Moves a message to another queue: an ack here and an enqueue there.
 *
 * On one backend both are one atomic step. Across backends the message is stored there first, under an id made of
 * where it comes from, and acked then: a crash in between repeats the step and stores nothing new.
 * With `reason` the message counts as dead-lettered here.
 */
export function forward<U>(
  held: HeldClaim,
  to: Queue<U>,
  payload: U,
  options?: EnqueueOptions,
  reason?: string,
): Eventual<Settlement> {
  checkOptions(options, 'forward', enqueueOptions)
  const target = coreOf(to)
  if (!target) throw new InvalidOptionError('forward.to', to, 'a Queue')
  const prepared = Eventual.from(target.prepare({ ...options, payload })).then((message) =>
    target
      .ready()
      .then((): Command | Eventual<Command> =>
        target.hub.backend === held.owner.backend
          ? carrying({ queue: target.name, message }, reason)
          : storing(target, held, message),
      ),
  )
  return held.settleAfter(prepared)
}

function carrying(carried: CarriedMessage, reason: string | undefined): Command {
  return reason === undefined ? { kind: 'ack', carry: [carried] } : { kind: 'dead-letter', reason, carry: [carried] }
}

function storing<U>(target: QueueCore<U>, held: HeldClaim, message: NewMessage): Eventual<Command> {
  const once = { ...message, id: `${held.owner.queue}/${held.claim.id}` }
  return target.store([once]).then(() => ({ kind: 'ack' }) as Command)
}
