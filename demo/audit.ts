/** Audits one package: its licence, and what it weighs. */
import { lstat, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { retry } from 'abort-controller-x'

export interface Audit {
  readonly name: string
  /** Empty where the manifest has none. */
  readonly version: string
  readonly licence: string
  readonly files: number
  readonly bytes: number
  /** How long the audit took. */
  readonly ms: number
}

/** The package itself is at fault: another try would find the same. */
export abstract class AuditError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
  }
}

export class UnreadablePackageError extends AuditError {}

export class MissingLicenceError extends AuditError {}

type Json = Readonly<Record<string, unknown>>

const LICENCE_FILE = /^(licen[cs]e|copying)([.-].*)?$/i

/** Too many open files, a busy disk: nothing that says anything about the package. */
const TRANSIENT = new Set(['EMFILE', 'ENFILE', 'EAGAIN', 'EBUSY', 'EINTR'])

/**
 * Rejects with an {@link AuditError} when the package is at fault, with the file system's error when that has a bad
 * moment, and when the signal aborts, which is looked at before each step.
 */
export async function audit(folder: string, signal: AbortSignal): Promise<Audit> {
  const began = performance.now()
  try {
    const manifest = await readManifest(folder, signal)
    const licence = licenceOf(manifest) ?? (await licenceFile(folder, signal))
    if (licence === undefined) throw new MissingLicenceError('no licence in the manifest, and no licence file')
    const weight = await weigh(folder, signal)
    const { name, version } = manifest
    return {
      name: typeof name === 'string' ? name : folder,
      version: typeof version === 'string' ? version : '',
      licence,
      ...weight,
      ms: performance.now() - began,
    }
  } catch (error) {
    throw isFinal(error) ? new UnreadablePackageError(error.message, { cause: error }) : error
  }
}

async function readManifest(folder: string, signal: AbortSignal): Promise<Json> {
  const text = await patiently(signal, () => readFile(join(folder, 'package.json'), 'utf8'))
  const manifest = parse(text)
  if (isRecord(manifest)) return manifest
  throw new UnreadablePackageError('package.json is not an object')
}

function parse(text: string): unknown {
  try {
    // A byte order mark is no JSON, and npm forgives it.
    return JSON.parse(text.replace(/^\uFEFF/, ''))
  } catch (cause) {
    throw new UnreadablePackageError('package.json is not JSON', { cause })
  }
}

/** `license` as text or, in old manifests, as `{ type }`; older still is `licenses`, a list of either. */
export function licenceOf(manifest: Json): string | undefined {
  const { license, licenses } = manifest
  const single = licenceName(license)
  if (single !== undefined) return single
  if (!Array.isArray(licenses)) return licenceName(licenses)
  const names = licenses.map(licenceName).filter((name) => name !== undefined)
  return names.length === 0 ? undefined : names.join(' OR ')
}

function licenceName(value: unknown): string | undefined {
  const name = isRecord(value) ? value['type'] : value
  return typeof name === 'string' && name.trim() !== '' ? name.trim() : undefined
}

async function licenceFile(folder: string, signal: AbortSignal): Promise<string | undefined> {
  const names = await patiently(signal, () => readdir(folder))
  const name = names.sort().find((each) => LICENCE_FILE.test(each))
  return name === undefined ? undefined : `see ${name}`
}

/** The package's own files: what is installed below it is a package of its own. */
async function weigh(folder: string, signal: AbortSignal): Promise<{ files: number; bytes: number }> {
  const sum = { files: 0, bytes: 0 }
  for (const entry of await patiently(signal, () => readdir(folder, { withFileTypes: true }))) {
    if (entry.name === 'node_modules') continue
    const path = join(folder, entry.name)
    const part = entry.isDirectory() ? await weigh(path, signal) : { files: 1, bytes: await sizeOf(path, signal) }
    sum.files += part.files
    sum.bytes += part.bytes
  }
  return sum
}

/** A link counts as itself: what it points to may lie elsewhere, or nowhere. */
async function sizeOf(path: string, signal: AbortSignal): Promise<number> {
  const { size } = await patiently(signal, () => lstat(path))
  return size
}

/** A short wait often does it; what lasts longer goes back to the queue, and its lane is free meanwhile. */
function patiently<T>(signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
  signal.throwIfAborted()
  return retry(signal, ask, { baseMs: 10, maxDelayMs: 100, maxAttempts: 3, onError: throwUnlessTransient })
}

function throwUnlessTransient(error: unknown): void {
  if (!TRANSIENT.has(codeOf(error))) throw error
}

/** What the file system says of the package, and will say again. */
function isFinal(error: unknown): error is Error {
  return isFromFileSystem(error) && !TRANSIENT.has(codeOf(error))
}

function isFromFileSystem(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error
}

function codeOf(error: unknown): string {
  return String((error as { code?: unknown }).code)
}

function isRecord(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
