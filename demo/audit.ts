/**
 * Audits one package: its licence, and what it weighs.
 */
import type { Dirent } from 'node:fs'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { InstalledPackage } from './packages.js'

export interface Audit {
  readonly place: string
  readonly version: string
  readonly licence: string
  readonly files: number
  readonly bytes: number
  readonly tookMs: number
}

/** The package is at fault: another try would find the same. */
export abstract class AuditError extends Error {}

export class ManifestError extends AuditError {
  override readonly name = 'ManifestError'
}

export class NoLicenceError extends AuditError {
  override readonly name = 'NoLicenceError'
}

type Manifest = Readonly<Record<string, unknown>>

/** Too many open files, a busy disk: nothing that says anything about the package. */
const TRANSIENT = new Set(['EMFILE', 'ENFILE', 'EAGAIN', 'EBUSY', 'EINTR', 'EIO', 'ENOMEM'])
const LICENCE_FILE = /^(licen[cs]e|copying)([.-].*)?$/i

/** Looks at the signal between its steps, and ends with the signal's reason. */
export async function audit({ path, place }: InstalledPackage, signal: AbortSignal): Promise<Audit> {
  const startedAt = performance.now()
  const manifest = await readManifest(path)
  signal.throwIfAborted()
  const licence = statedLicence(manifest) ?? (await licenceFile(path))
  signal.throwIfAborted()
  const { files, bytes } = await weigh(path, signal)
  const version = typeof manifest['version'] === 'string' ? manifest['version'] : '?'
  return { place, version, licence, files, bytes, tookMs: performance.now() - startedAt }
}

async function readManifest(path: string): Promise<Manifest> {
  const manifest = parse(await readText(join(path, 'package.json')))
  if (typeof manifest !== 'object' || manifest === null || Array.isArray(manifest)) {
    throw new ManifestError('package.json is not an object')
  }
  return manifest as Manifest
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if (isTransient(error)) throw error
    throw new ManifestError(`package.json cannot be read (${codeOf(error)})`, { cause: error })
  }
}

/** Whether the same call may well succeed later. */
function isTransient(error: unknown): boolean {
  return TRANSIENT.has(codeOf(error))
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error)
}

function parse(text: string): unknown {
  try {
    // A byte order mark is no JSON, and npm forgives it.
    return JSON.parse(text.replace(/^\uFEFF/, ''))
  } catch (error) {
    throw new ManifestError('package.json is not JSON', { cause: error })
  }
}

/** `license` as text or, in manifests of old, as `{ type }`; the `licenses` list is older still. */
export function statedLicence({ license, licenses }: Manifest): string | undefined {
  const listed = Array.isArray(licenses) ? licenses.map(licenceName).filter((name) => name !== undefined) : []
  return licenceName(license) ?? (listed.length > 0 ? listed.join(' OR ') : undefined)
}

function licenceName(value: unknown): string | undefined {
  const name = typeof value === 'object' && value !== null && 'type' in value ? value.type : value
  return typeof name === 'string' && name.trim() !== '' ? name.trim() : undefined
}

async function licenceFile(path: string): Promise<string> {
  const entries = await readdir(path, { withFileTypes: true })
  if (entries.some((entry) => entry.isFile() && LICENCE_FILE.test(entry.name))) return 'see file'
  throw new NoLicenceError('package.json names no licence, and there is no licence file')
}

interface Weight {
  readonly files: number
  readonly bytes: number
}

/** The package's own files: what is installed below it is a package of its own, and a link weighs nothing. */
async function weigh(dir: string, signal: AbortSignal): Promise<Weight> {
  let files = 0
  let bytes = 0
  for (const entry of await readdir(dir, { withFileTypes: true })) {
    signal.throwIfAborted()
    const part = await weighEntry(dir, entry, signal)
    files += part.files
    bytes += part.bytes
  }
  return { files, bytes }
}

async function weighEntry(dir: string, entry: Dirent, signal: AbortSignal): Promise<Weight> {
  const path = join(dir, entry.name)
  if (entry.isDirectory() && entry.name !== 'node_modules') return weigh(path, signal)
  return entry.isFile() ? { files: 1, bytes: (await stat(path)).size } : { files: 0, bytes: 0 }
}
