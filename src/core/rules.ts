/**
 * The rules of every option that a queue takes.
 */
import { type Backend, MAX_PRIORITY } from '../driver.js'
import { InvalidOptionError, UnsupportedError } from '../errors.js'
import {
  abortSignal,
  boolean,
  checkOptions,
  delay,
  duration,
  has,
  headers,
  integer,
  name,
  number,
  oneOf,
  options,
  type Rule,
  record,
} from '../options.js'
import type { SourceOptions } from '../queue.js'

export { name } from '../options.js'

/** A lease shorter than this could not be renewed in time. */
const MIN_LEASE_MS = 50

export const backend: Rule = has('a backend', 'open', 'close')

export const required: Rule = record

const codec: Rule = (value, field) => {
  has('a codec', 'encode', 'decode')(value, field)
  name((value as { name?: unknown }).name, `${field}.name`)
}

const schema: Rule = (value, field) => {
  const standard = (value as { '~standard'?: { validate?: unknown } } | null)?.['~standard']
  if (typeof standard?.validate !== 'function') throw new InvalidOptionError(field, value, 'a Standard Schema')
}

const limits = options({
  maxLength: integer(1),
  maxBytes: integer(1),
  maxPayloadBytes: integer(1),
  whenFull: oneOf('reject', 'dropOldest'),
})

const retention = options({ outcomesMs: duration(0), maxOutcomes: integer(0) })

const ageing: Rule = (value, field) => {
  options({ stepMs: duration(1), cap: integer(0, MAX_PRIORITY) })(value, field)
  if ((value as { stepMs?: unknown }).stepMs === undefined)
    throw new InvalidOptionError(`${field}.stepMs`, undefined, 'given')
}

const shared = { codec, maxDeliveries: integer(1, 1_000), limits, retention }

export const queueOptions = {
  ...shared,
  ageing,
  backend,
  schema,
  leaseMs: duration(MIN_LEASE_MS),
  ttlMs: duration(1),
  whenExpired: oneOf('drop', 'dead-letter'),
  consumer: name,
}

export const sharedSettings = { ...shared, ageing: ((value, field) => value === null || ageing(value, field)) as Rule }

export const enqueueOptions = {
  id: name,
  priority: integer(0, MAX_PRIORITY),
  delayMs: delay,
  key: name,
  partition: name,
  headers,
  ttlMs: duration(1),
  signal: abortSignal,
}

const entry = { ...enqueueOptions, payload: () => {} }

export const entries: Rule = (value, field) => {
  if (!Array.isArray(value)) throw new InvalidOptionError(field, value, 'an array')
  value.forEach((item, index) => {
    record(item, `${field}[${index}]`)
    checkOptions(item, `${field}[${index}]`, entry)
  })
}

export const signalOption = { signal: abortSignal }

export const stopBounds = { drainMs: duration(0), graceMs: duration(0) }

export const closeOptions = { graceMs: duration(0) }

export const sourceOptions = {
  ...stopBounds,
  signal: abortSignal,
  credit: integer(1),
  autoAck: boolean,
  group: name,
  partition: name,
  until: oneOf('empty', 'idle'),
  leaseMs: duration(MIN_LEASE_MS),
  maxLeaseMs: duration(MIN_LEASE_MS),
}

export const receiveOptions = { signal: abortSignal, timeoutMs: duration(0) }

export const peekOptions = { state: oneOf('ready', 'delayed', 'claimed'), limit: integer(1) }

const purgeState = oneOf('ready', 'delayed', 'claimed', 'dead')

export const purgeOptions = {
  state: ((value, field) => {
    if (!Array.isArray(value)) return purgeState(value, field)
    for (const [index, item] of value.entries()) purgeState(item, `${field}[${index}]`)
  }) as Rule,
}

export const backoffRules = {
  baseMs: duration(0),
  factor: number(1, 1_000),
  maxMs: duration(0),
  jitter: number(0, 1),
}

/** A backoff, or a function that gives the delay. */
export function checkBackoff(backoff: unknown, what: string): void {
  if (typeof backoff !== 'function') checkOptions(backoff, what, backoffRules)
}

/** Refuses what the backend cannot do. */
export function supported({ group, partition }: SourceOptions, { name: kind, features }: Backend): void {
  if (group !== undefined && !features.groups) throw new UnsupportedError(kind, 'groups')
  if (partition !== undefined && !features.partitions) throw new UnsupportedError(kind, 'partitions')
}
