/** The rules of the house on a whole tree. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { checkCycles } from './cycles.js'
import { checkLayers } from './layers.js'
import { checkName } from './names.js'
import { parseSource, type Violation } from './source.js'
import { checkVirtualTime } from './virtual-time.js'

/** Checks sources by their path, such as `src/core/clock.ts`. What is not TypeScript under src is left out. */
export function checkSources(texts: ReadonlyMap<string, string>): Violation[] {
  const files = [...texts].filter(([path]) => path.startsWith('src/') && path.endsWith('.ts'))
  const sources = files.map(([path, text]) => parseSource(path, text))
  const known = new Set(sources.map(({ path }) => path))
  return [
    ...sources.flatMap((file) => [...checkName(file.path), ...checkLayers(file, known), ...checkVirtualTime(file)]),
    ...checkCycles(sources),
  ].sort((a, b) => a.file.localeCompare(b.file) || a.line - b.line)
}

/** Reads and checks the src folder of a repository. */
export function checkTree(root: string): { files: number; violations: Violation[] } {
  const paths = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .map((path) => `src/${path.replaceAll('\\', '/')}`)
    .filter((path) => path.endsWith('.ts'))
    .sort()
  const violations = checkSources(new Map(paths.map((path) => [path, readFileSync(join(root, path), 'utf8')])))
  return { files: paths.length, violations }
}

export function formatViolation({ file, line, rule, message }: Violation): string {
  return `${file}:${line} ${rule}: ${message}`
}
