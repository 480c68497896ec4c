/**
 * Who may import whom within src.
 *
 *     core  <-  operators  <-  sinks         a source sees the driver contract and its own client, nothing else
 *
 * The files right in src are the contract (driver, errors, delivery, …) that all layers share; `index.ts` alone puts
 * the layers together. Type imports keep to the layers as well: a type that a layer needs is part of its contract.
 */
import { type Import, resolveRelative, type SourceFile, type Violation } from './source.js'

/** The client package of each backend, and of what backends share. A new backend adds its line here. */
const CLIENTS: Readonly<Record<string, readonly string[]>> = {
  local: [],
  memory: [],
  sqlite: ['better-sqlite3'],
  redis: ['ioredis'],
  etcd: ['etcd3'],
}

/** What a backend sees of the contract. */
const DRIVER_CONTRACT = ['src/driver.ts', 'src/errors.ts', 'src/eventual.ts', 'src/options.ts']

interface Layer {
  /** Folders of src, other than its own, that its files may import; `.` is the files right in src. */
  readonly sees: readonly string[]
  /** Whether files right in src are limited to the driver contract. */
  readonly contractOnly?: boolean
  readonly packages: readonly string[]
}

const LAYERS: Readonly<Record<string, Layer>> = {
  index: { sees: ['.', 'core', 'operators', 'sinks'], packages: [] },
  '.': { sees: ['core'], packages: ['rxjs', '@standard-schema/spec'] },
  core: { sees: ['.'], packages: ['rxjs', '@standard-schema/spec'] },
  operators: { sees: ['.', 'core'], packages: ['rxjs'] },
  sinks: { sees: ['.', 'core', 'operators'], packages: ['rxjs'] },
  testing: { sees: ['.', 'index', 'core', 'operators', 'sinks', 'sources/memory'], packages: ['rxjs'] },
}

/** The imports of one file that its layer does not allow. `known` holds all paths of the tree. */
export function checkLayers(file: SourceFile, known: ReadonlySet<string>): Violation[] {
  const own = layerNameOf(file.path)
  const layer = layerOf(own)
  if (layer === undefined) {
    return [{ file: file.path, line: 1, rule: 'unknown-folder', message: `src/${own} is no layer of the house` }]
  }
  return file.imports.flatMap((each) => {
    const problem = each.specifier.startsWith('.')
      ? problemWithFile(resolveRelative(file.path, each.specifier), own, layer, known)
      : problemWithPackage(each, own, layer)
    return problem ? [{ file: file.path, line: each.line, ...problem }] : []
  })
}

type Problem = Pick<Violation, 'rule' | 'message'>

function problemWithFile(target: string, own: string, layer: Layer, known: ReadonlySet<string>): Problem | undefined {
  if (!target.startsWith('src/')) return { rule: 'layers', message: `imports ${target}, which is outside src` }
  if (!known.has(target)) return { rule: 'unresolved', message: `imports ${target}, which is not there` }
  const other = layerNameOf(target)
  if (other === own) return undefined
  if (layer.contractOnly && other === '.' && !DRIVER_CONTRACT.includes(target)) {
    return { rule: 'layers', message: `a backend sees only ${DRIVER_CONTRACT.join(', ')}, not ${target}` }
  }
  if (layer.sees.includes(other)) return undefined
  return { rule: 'layers', message: `${titleOf(own)} must not import ${target}` }
}

function problemWithPackage({ specifier }: Import, own: string, layer: Layer): Problem | undefined {
  if (specifier === '(computed)') return { rule: 'packages', message: 'import() needs a plain string' }
  if (specifier.startsWith('node:')) return undefined
  const name = specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/')
  if (layer.packages.includes(name)) return undefined
  return { rule: 'packages', message: `${titleOf(own)} must not import the package ${name}` }
}

function layerOf(name: string): Layer | undefined {
  const [folder, backend] = name.split('/')
  if (folder !== 'sources') return LAYERS[name]
  const clients = backend === undefined ? undefined : CLIENTS[backend]
  return clients && { sees: ['.', 'sources/local'], contractOnly: true, packages: ['rxjs', ...clients] }
}

/** `core` for src/core/clock.ts, `sources/redis` for src/sources/redis/claim.ts, `.` for src/errors.ts. */
function layerNameOf(path: string): string {
  const [, folder = '', ...rest] = path.split('/')
  if (rest.length === 0) return folder === 'index.ts' ? 'index' : '.'
  return folder === 'sources' && rest.length > 1 ? `sources/${rest[0]}` : folder
}

function titleOf(layer: string): string {
  return layer === '.' ? 'a file right in src' : `src/${layer}`
}
