/**
 * The text of the scripts, as it lies beside this file. A build puts the text in the place of this file, so that what
 * is published reads no files and can be bundled.
 */
import { readFileSync } from 'node:fs'

const SHARED = ['queue', 'changes', 'moves', 'upkeep', 'enqueue']

/** The files of each script, in order. A file sees the local names of those before it. */
const FILES = {
  enqueue: [...SHARED, 'run'],
  consume: [...SHARED, 'settle', 'claim', 'run'],
  administer: [...SHARED, 'inspect', 'dead', 'run'],
}

export type ScriptName = keyof typeof FILES

function textOf(name: ScriptName): string {
  return FILES[name].map((file) => readFileSync(new URL(`./lua/${file}.lua`, import.meta.url), 'utf8')).join('\n')
}

export const SOURCES: Readonly<Record<ScriptName, string>> = {
  enqueue: textOf('enqueue'),
  consume: textOf('consume'),
  administer: textOf('administer'),
}
