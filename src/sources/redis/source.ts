/**
 * The text of the scripts, as it lies beside this file. A build puts the text in the place of this file, so that what
 * is published reads no files and can be bundled.
 */
import { readFileSync } from 'node:fs'

/** What comes first in all scripts. */
const SHARED = ['head', 'answers', 'outcomes']

/** Modules of all scripts, each seeing those before it. A `lazy` one is made only in the calls that need it. */
const MODULES = [
  { name: 'queues', lazy: false },
  { name: 'changes', lazy: false },
  { name: 'moves', lazy: false },
  { name: 'ends', lazy: true },
  { name: 'upkeep', lazy: true },
  { name: 'admission', lazy: true },
]

/** The files of each script: those for plain turns, which come before the modules, and those with its verbs. */
const FILES = {
  enqueue: { plain: ['plain', 'plain-enqueue'], verbs: ['enqueue'] },
  consume: { plain: ['plain', 'plain-consume'], verbs: ['settle', 'claim'] },
  administer: { plain: [], verbs: ['inspect', 'dead'] },
}

export type ScriptName = keyof typeof FILES

function textOf(file: string): string {
  return readFileSync(new URL(`./lua/${file}.lua`, import.meta.url), 'utf8')
}

/**
 * Each module is a function of its own that is called at once or lazily: what a file names stays in it, and functions are
 * made much faster where few local names are in sight.
 */
function textOfScript(name: ScriptName): string {
  const { plain, verbs } = FILES[name]
  const modules = [...MODULES, ...verbs.map((file) => ({ name: file, lazy: false }))]
  const texts = modules.map(({ name, lazy }) => {
    const body = `function()\n${textOf(name)}end`
    return lazy ? `local ${name} = lazy(${body})\n` : `local ${name} = (${body})()\n`
  })
  return [...[...SHARED, ...plain].map(textOf), ...texts, textOf('run')].join('\n')
}

export const SOURCES: Readonly<Record<ScriptName, string>> = {
  enqueue: textOfScript('enqueue'),
  consume: textOfScript('consume'),
  administer: textOfScript('administer'),
}
