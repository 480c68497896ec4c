import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'
import { afterAll } from 'vitest'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))

/**
 * One file of JavaScript made of a program of `children/` and all that it needs, for as long as this test file runs.
 * It starts in a fifth of the time that the sources would need to be compiled again in each process.
 */
export async function bundled(program: URL): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-child-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  const client = createRequire(import.meta.url).resolve('better-sqlite3')
  await build({
    configFile: false,
    root: ROOT,
    logLevel: 'warn',
    resolve: { tsconfigPaths: true },
    ssr: { noExternal: true, external: ['better-sqlite3'] },
    build: {
      ssr: fileURLToPath(program),
      outDir: folder,
      emptyOutDir: true,
      target: 'node20',
      minify: false,
      rolldownOptions: {
        external: ['better-sqlite3'],
        output: { entryFileNames: '[name].mjs', paths: { 'better-sqlite3': client } },
      },
    },
  })
  return join(folder, `${basename(program.pathname, '.ts')}.mjs`)
}
