/** The command line of the demo. */
import { statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

export interface DemoOptions {
  /** The `node_modules` folder to audit. */
  readonly dir: string
  readonly lanes: number
  /** Keeps nothing: what is not done when the process ends is forgotten with the rest. */
  readonly memory: boolean
}

export const USAGE = 'usage: npm run demo -- [--dir <node_modules folder>] [--lanes <1 to 1000>] [--memory]'

const OWN_MODULES = fileURLToPath(new URL('../node_modules', import.meta.url))

/** Throws an Error whose message says what is wrong. */
export function readOptions(args: readonly string[]): DemoOptions {
  const options = { dir: { type: 'string' }, lanes: { type: 'string' }, memory: { type: 'boolean' } } as const
  const { dir = OWN_MODULES, lanes = '8', memory = false } = parseArgs({ args: [...args], options }).values
  return { dir: folder(dir), lanes: laneCount(lanes), memory }
}

function folder(dir: string): string {
  if (!statSync(dir, { throwIfNoEntry: false })?.isDirectory()) throw new Error(`--dir: ${dir} is not a folder`)
  return dir
}

function laneCount(text: string): number {
  const lanes = Number(text)
  if (/^\d+$/.test(text) && lanes >= 1 && lanes <= 1_000) return lanes
  throw new Error(`--lanes must be a whole number from 1 to 1000, not ${text}`)
}
