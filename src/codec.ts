/**
 * How payloads become bytes and come back.
 */
import { describeValue, PayloadError } from './errors.js'

/** Encodes and decodes the payloads of a queue. The same `name` means the same codec; it is stored with the queue. */
export interface Codec<T> {
  readonly name: string
  /** Throws `PayloadError` for a value that would not come back as it is. */
  encode(value: T): Uint8Array
  decode(bytes: Uint8Array): T
}

/**
 * Plain JSON values: objects, arrays, strings, finite numbers, booleans, null.
 *
 * Nothing is changed silently: a `Date`, `Map`, class instance, bigint, function, symbol, `NaN` or `undefined` array
 * element is refused with a `PayloadError` naming its path. A property that is `undefined` is left out, as in JSON.
 */
export function json<T = unknown>(): Codec<T> {
  return JSON_CODEC as Codec<T>
}

/** Bytes as they are. Accepts any `Uint8Array`; gives back a `Uint8Array`. */
export function bytes(): Codec<Uint8Array> {
  return BYTES_CODEC
}

const JSON_CODEC: Codec<unknown> = {
  name: 'json',
  encode(value) {
    try {
      checkPlain(value, 'payload', undefined)
      return Buffer.from(JSON.stringify(value))
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      throw new PayloadError('payload', value, 'is too large or too deep for JSON', { cause: error })
    }
  },
  decode(stored) {
    return JSON.parse(asBuffer(stored).toString('utf8'))
  },
}

const BYTES_CODEC: Codec<Uint8Array> = {
  name: 'bytes',
  encode(value) {
    if (!(value instanceof Uint8Array))
      throw new PayloadError('payload', value, `must be a Uint8Array, not ${describeValue(value)}`)
    // A copy, so that a caller who reuses the buffer does not change what is stored.
    return new Uint8Array(value)
  },
  decode(stored) {
    return new Uint8Array(stored)
  },
}

function asBuffer(stored: Uint8Array): Buffer {
  return stored instanceof Buffer ? stored : Buffer.from(stored.buffer, stored.byteOffset, stored.byteLength)
}

/** The chain of containers that lead to a value; also how a cycle is found. */
interface Trail {
  readonly container: object
  readonly step: string | number
  readonly up: Trail | undefined
}

function checkPlain(value: unknown, root: string, trail: Trail | undefined): void {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return
    case 'number':
      if (!Number.isFinite(value)) refuse(value, root, trail)
      return
    case 'object':
      if (value === null) return
      if (Array.isArray(value)) return checkArray(value, root, trail)
      return checkRecord(value, root, trail)
    default:
      refuse(value, root, trail)
  }
}

function checkArray(value: readonly unknown[], root: string, trail: Trail | undefined): void {
  refuseCycle(value, root, trail)
  for (let index = 0; index < value.length; index += 1) {
    const item = value[index]
    if (isLeaf(item)) continue
    checkPlain(item, root, { container: value, step: index, up: trail })
  }
}

function checkRecord(value: object, root: string, trail: Trail | undefined): void {
  const prototype = Object.getPrototypeOf(value)
  // The prototype of plain objects is the one whose own prototype is null, in every realm.
  const plain = prototype === null || Object.getPrototypeOf(prototype) === null
  if (!plain || 'toJSON' in value) refuse(value, root, trail)
  refuseCycle(value, root, trail)
  for (const name of Object.keys(value)) {
    const item = (value as Record<string, unknown>)[name]
    if (isLeaf(item) || item === undefined) continue
    checkPlain(item, root, { container: value, step: name, up: trail })
  }
}

/** The common cases, answered without building a trail. */
function isLeaf(value: unknown): boolean {
  return (
    typeof value === 'string' ||
    (typeof value === 'number' && Number.isFinite(value)) ||
    typeof value === 'boolean' ||
    value === null
  )
}

function refuseCycle(value: object, root: string, trail: Trail | undefined): void {
  for (let at = trail; at; at = at.up) {
    if (at.container === value) throw new PayloadError(pathOf(root, trail), value, 'refers back to what contains it')
  }
}

function refuse(value: unknown, root: string, trail: Trail | undefined): never {
  throw new PayloadError(
    pathOf(root, trail),
    value,
    `is ${describeValue(value)}, which JSON would not give back as it is`,
  )
}

function pathOf(root: string, trail: Trail | undefined): string {
  const steps: (string | number)[] = []
  for (let at = trail; at; at = at.up) steps.unshift(at.step)
  return steps.reduce<string>((path, step) => (typeof step === 'number' ? `${path}[${step}]` : `${path}.${step}`), root)
}
