/**
 * `npm run bench` lists the benches; `npm run bench -- NAME` runs `bench/NAME.ts`.
 *
 * A bench measures what users get: the package is built first, and `millrace` means dist there (tsconfig.bench.json
 * has none of the paths that lead to src). Further arguments go to the bench.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const [name, ...args] = process.argv.slice(2)

if (name === undefined) list()
else if (!existsSync(join(root, 'bench', `${name}.ts`))) refuse(name)
else process.exitCode = build() || bench(name, args)

function list(): void {
  const files = readdirSync(join(root, 'bench')).filter((file) => file.endsWith('.ts'))
  const benches = files.map((file) => file.slice(0, -'.ts'.length)).filter(isBench)
  console.log('npm run bench -- NAME, where NAME is one of:')
  for (const each of benches) console.log(`  ${each.padEnd(24)} ${summaryOf(each)}`)
}

/** Benches call `runBench`; the other files in the folder are what they are made of. */
function isBench(name: string): boolean {
  return /^await runBench\(/m.test(textOf(name))
}

/** The first line of the comment at the head of a bench. */
function summaryOf(name: string): string {
  return /^(?:\/\/ |\/\*\*\s*(?:\*\s*)?)(.*?)(?:\s*\*\/)?$/m.exec(textOf(name))?.[1] ?? ''
}

function textOf(name: string): string {
  return readFileSync(join(root, 'bench', `${name}.ts`), 'utf8')
}

function refuse(name: string): void {
  console.error(`there is no bench/${name}.ts`)
  list()
  process.exitCode = 1
}

function build(): number {
  const shell = process.platform === 'win32'
  return spawnSync('npm', ['run', '--silent', 'build'], { cwd: root, stdio: 'inherit', shell }).status ?? 1
}

function bench(name: string, args: readonly string[]): number {
  const env = { ...process.env, TSX_TSCONFIG_PATH: join(root, 'tsconfig.bench.json') }
  const node = ['--expose-gc', '--import', 'tsx', join(root, 'bench', `${name}.ts`), ...args]
  return spawnSync(process.execPath, node, { cwd: root, stdio: 'inherit', env }).status ?? 1
}
