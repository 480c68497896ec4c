import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'

/** Where programs find the packages of this project. */
const FOLDER = fileURLToPath(new URL('../../node_modules/.cache/millrace-tests', import.meta.url))

/** A program that plain Node runs. */
export interface Bundle {
  readonly path: string
  remove(): void
}

/** Compiles a program into one file, once for all children that run it: each of them would take a second for it. */
export async function bundled(program: URL): Promise<Bundle> {
  mkdirSync(FOLDER, { recursive: true })
  const outDir = mkdtempSync(join(FOLDER, 'bundle-'))
  const entryFileNames = basename(program.pathname).replace(/\.ts$/, '.mjs')
  await build({
    configFile: false,
    logLevel: 'error',
    resolve: { tsconfigPaths: true },
    build: { ssr: fileURLToPath(program), outDir, target: 'node20', rolldownOptions: { output: { entryFileNames } } },
  })
  return { path: join(outDir, entryFileNames), remove: () => rmSync(outDir, { recursive: true, force: true }) }
}
