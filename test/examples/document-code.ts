/** The TypeScript in a document, as programs that can be compiled and run. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { onTestFinished } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** The blocks of a document that are whole programs: those that begin with an import. */
export function programsIn(document: string): string[] {
  const text = readFileSync(join(ROOT, document), 'utf8')
  return [...text.matchAll(/^```ts\n(.*?)^```$/gms)].flatMap(([, code = '']) =>
    code.startsWith('import ') ? code : [],
  )
}

/** What a program says it prints: the comments behind its calls of `console.log`. */
export function promisedOutput(program: string): string {
  return [...program.matchAll(/console\.log\(.*\/\/ (.*)$/gm)].map(([, line]) => `${line}\n`).join('')
}

/** Writes programs to a folder of their own, in which `millrace` is this source tree. Gone after the test. */
export function folderOf(programs: readonly string[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-document-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'junction')
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  const paths = {
    millrace: 'index.ts',
    'millrace/memory': 'sources/memory/index.ts',
    'millrace/sqlite': 'sources/sqlite/index.ts',
    'millrace/redis': 'sources/redis/index.ts',
    'millrace/etcd': 'sources/etcd/index.ts',
    'millrace/testing': 'testing/index.ts',
  }
  const config = {
    extends: join(ROOT, 'tsconfig.json'),
    compilerOptions: {
      paths: Object.fromEntries(Object.entries(paths).map(([name, path]) => [name, [join(ROOT, 'src', path)]])),
    },
    include: ['*.ts'],
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  for (const [index, program] of programs.entries()) writeFileSync(join(folder, `${index}.ts`), program)
  return folder
}

/** What the compiler has to say; nothing when all is well. */
export async function compile(folder: string): Promise<string> {
  const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
  try {
    await run([compiler, '-p', folder], folder)
    return ''
  } catch (error) {
    return (error as { stdout: string }).stdout
  }
}

export function outputOf(folder: string, index: number): Promise<string> {
  return run(['--import', 'tsx', `${index}.ts`], folder)
}

async function run(args: readonly string[], cwd: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd })
  return stdout
}
