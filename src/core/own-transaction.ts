/**
 * Enqueues and acks inside a transaction of the caller's own, committed and rolled back with what else is in it.
 */
import type { Settlement } from '../delivery.js'
import type { NewMessage, OwnTransaction, QueueDriver } from '../driver.js'
import { InvalidOptionError, UnsupportedError } from '../errors.js'
import { Eventual } from '../eventual.js'
import { checkOptions } from '../options.js'
import type { Enqueued, EnqueueInOptions } from '../queue.js'
import type { HeldClaim } from './held-claim.js'
import type { QueueCore } from './queue-core.js'
import { enqueueOptions } from './rules.js'

const { signal: _, ...RULES } = enqueueOptions

export function enqueueIn<T>(
  core: QueueCore<T>,
  connection: object,
  payload: T,
  options: EnqueueInOptions | undefined,
): Enqueued {
  core.assertOpen()
  checkOptions(options, 'enqueueIn', RULES)
  const verbs = verbsOf(core.hub.driver, core.hub.backend.name, connection)
  core.agreeIn((proposed) => verbs.settings(connection, proposed))
  const message = core.prepare({ ...options, payload })
  if (message instanceof Eventual)
    throw new InvalidOptionError(
      'QueueOptions.schema',
      core.options.schema,
      'one that validates at once, for enqueueIn',
    )
  return storedIn(verbs, connection, message)
}

export function ackIn(held: HeldClaim, connection: object, result: Uint8Array | undefined): Settlement {
  const { id, token } = held.claim
  const verbs = verbsOf(held.owner.driver, held.owner.backend.name, connection)
  return held.settleIn(() => verbs.settle(connection, { id, token, kind: 'ack', ...(result && { result }) }))
}

function storedIn(verbs: OwnTransaction, connection: object, message: NewMessage): Enqueued {
  const [status = 'enqueued'] = verbs.enqueue(connection, [message])
  return { id: message.id, status }
}

function verbsOf(driver: QueueDriver, backend: string, connection: object): OwnTransaction {
  if (driver.ownTransaction === undefined) throw new UnsupportedError(backend, 'ownTransactions')
  if (typeof connection !== 'object' || connection === null)
    throw new InvalidOptionError('connection', connection, 'a connection of the backend')
  return driver.ownTransaction
}
