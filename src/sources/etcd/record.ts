/**
 * What is stored under keys: text as JSON behind one byte that names the version of its form, so that people can read it
 * with etcdctl and a newer form is refused.
 */
import { BackendError, StoreVersionError } from '../../errors.js'

/** The version of all that is stored. */
const FORMAT = 1

const VERSION_BYTE = 0x30 + FORMAT
/** What begins with something else than a digit was written by hand, and not by a version to come. */
const NEWEST_BYTE = 0x39

/** A value as it is stored. */
export function encode(value: unknown): Buffer {
  return Buffer.from(`${FORMAT}${JSON.stringify(value)}`)
}

/** The stored value; throws `StoreVersionError` for one of a newer form. */
export function decode<T>(stored: Buffer, what: string): T {
  checkVersion(stored[0], what)
  return parsed(stored.toString('utf8', 1), what)
}

/** A value followed by bytes that are not looked into. */
export function encodeWithBytes(value: unknown, bytes: Uint8Array): Buffer {
  const head = Buffer.from(JSON.stringify(value))
  const stored = Buffer.allocUnsafe(5 + head.length + bytes.byteLength)
  stored[0] = VERSION_BYTE
  stored.writeUInt32BE(head.length, 1)
  head.copy(stored, 5)
  stored.set(bytes, 5 + head.length)
  return stored
}

export function decodeWithBytes<T>(stored: Buffer, what: string): { readonly value: T; readonly bytes: Uint8Array } {
  checkVersion(stored[0], what)
  const length = stored.length < 5 ? 0 : stored.readUInt32BE(1)
  if (length === 0 || 5 + length > stored.length) throw unreadable(what)
  return { value: parsed(stored.toString('utf8', 5, 5 + length), what), bytes: stored.subarray(5 + length) }
}

/** What is decoded; undefined where it cannot be. Throws for a newer form. */
export function readable<T>(decoded: () => T): T | undefined {
  try {
    return decoded()
  } catch (error) {
    if (error instanceof StoreVersionError) throw error
    return undefined
  }
}

function checkVersion(byte: number | undefined, what: string): void {
  if (byte === VERSION_BYTE) return
  if (byte !== undefined && byte > VERSION_BYTE && byte <= NEWEST_BYTE)
    throw new StoreVersionError(what, byte - 0x30, FORMAT)
  throw unreadable(what)
}

function parsed<T>(text: string, what: string): T {
  try {
    return JSON.parse(text) as T
  } catch (cause) {
    throw new BackendError(`${what} holds something that cannot be read`, { cause })
  }
}

function unreadable(what: string): BackendError {
  return new BackendError(`${what} holds something that cannot be read`)
}
