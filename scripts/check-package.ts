/**
 * What a user gets: packs the package, installs it in an empty folder with nothing but what it declares, imports each
 * of its entries in plain Node, and compiles a consumer under both module resolutions that matter.
 *
 * Library checks are on in that compilation, so our own declaration files must be sound by themselves.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

interface Manifest {
  readonly name: string
  readonly exports: Readonly<Record<string, unknown>>
  readonly dependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
}

const RESOLUTIONS = ['nodenext', 'bundler'] as const

const root = fileURLToPath(new URL('..', import.meta.url))
const consumer = mkdtempSync(join(tmpdir(), 'millrace-consumer-'))
try {
  const manifest = installPacked()
  const entries = Object.keys(manifest.exports)
    .filter((key) => !key.endsWith('.json'))
    .map((key) => manifest.name + key.slice(1))
  const failures = [
    ...entries.filter((entry) => !imports(entry)),
    ...RESOLUTIONS.filter((each) => !compiles(each, entries)),
  ]
  for (const failure of failures) console.error(`package: ${failure} failed, see above`)
  console.log(`package: ${entries.length} entries, ${failures.length} failures`)
  process.exitCode = failures.length > 0 ? 1 : 0
} finally {
  rmSync(consumer, { recursive: true })
}

/** The packed files under node_modules, next to links to the packages that they declare and to no others. */
function installPacked(): Manifest {
  const options = { cwd: root, encoding: 'utf8', shell: process.platform === 'win32' } as const
  const packed = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', consumer], options)
  const [{ filename }] = JSON.parse(packed) as [{ filename: string }]
  execFileSync('tar', ['-xzf', filename], { cwd: consumer })
  const manifest = JSON.parse(readFileSync(join(consumer, 'package/package.json'), 'utf8')) as Manifest
  cpSync(join(consumer, 'package'), join(consumer, 'node_modules', manifest.name), { recursive: true })
  const declared = { ...manifest.dependencies, ...manifest.peerDependencies }
  for (const name of [...Object.keys(declared), '@types/node']) link(name)
  writeFileSync(join(consumer, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
  return manifest
}

function link(name: string): void {
  const target = join(consumer, 'node_modules', name)
  mkdirSync(dirname(target), { recursive: true })
  symlinkSync(join(root, 'node_modules', name), target, 'junction')
}

function imports(entry: string): boolean {
  const code = `if (Object.keys(await import('${entry}')).length === 0) throw new Error('${entry} exports nothing')`
  return run(['--input-type=module', '--eval', code])
}

function compiles(moduleResolution: (typeof RESOLUTIONS)[number], entries: readonly string[]): boolean {
  const lines = entries.map((entry, index) => `export * as entry${index} from '${entry}'`)
  writeFileSync(join(consumer, 'consumer.ts'), lines.join('\n'))
  const compilerOptions = {
    strict: true,
    noEmit: true,
    skipLibCheck: false,
    target: 'es2022',
    lib: ['es2023', 'esnext.disposable'],
    types: ['node'],
    module: moduleResolution === 'bundler' ? 'esnext' : moduleResolution,
    moduleResolution,
  }
  writeFileSync(join(consumer, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['consumer.ts'] }))
  return run([join(root, 'node_modules/typescript/bin/tsc'), '-p', '.'])
}

function run(args: readonly string[]): boolean {
  return spawnSync(process.execPath, args, { cwd: consumer, stdio: 'inherit' }).status === 0
}
