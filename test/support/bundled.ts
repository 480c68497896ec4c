import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, type Plugin } from 'vite'
import { afterAll } from 'vitest'
import { SOURCES } from '../../src/sources/redis/source.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** Below the packages, so that programs find them. */
const CACHE = join(ROOT, 'node_modules', '.cache', 'millrace')

/** As a build does: the scripts of Redis are in the program, not in files beside it. */
const embeddedScripts: Plugin = {
  name: 'embedded-scripts',
  load: (id) =>
    id.endsWith('/src/sources/redis/source.ts') ? `export const SOURCES = ${JSON.stringify(SOURCES)}` : undefined,
}

/**
 * Each of these programs as one file of JavaScript that has all it needs of this project, for as long as this test file
 * runs. It starts in a fifth of the time that the sources would need to be compiled again in each process.
 */
export async function allBundled(programs: readonly URL[]): Promise<string[]> {
  mkdirSync(CACHE, { recursive: true })
  const folder = mkdtempSync(join(CACHE, 'child-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  await build({
    configFile: false,
    root: ROOT,
    logLevel: 'warn',
    plugins: [embeddedScripts],
    // Its two hundred files take as long to load as all the rest.
    ssr: { noExternal: ['rxjs'] },
    resolve: { tsconfigPaths: true },
    build: {
      ssr: true,
      outDir: folder,
      emptyOutDir: true,
      target: 'node20',
      minify: false,
      rolldownOptions: {
        input: programs.map((program) => fileURLToPath(program)),
        output: { entryFileNames: '[name].mjs' },
      },
    },
  })
  return programs.map(({ pathname }) => join(folder, `${basename(pathname, '.ts')}.mjs`))
}

export async function bundled(program: URL): Promise<string> {
  const [path] = await allBundled([program])
  return path as string
}
