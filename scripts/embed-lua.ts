/**
 * The last step of a build: puts the text of the Redis scripts in the place of the module that reads them from files,
 * so that what is published needs no files beside it and can be bundled.
 */
import { rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { SOURCES } from '../src/sources/redis/source.js'

const target = fileURLToPath(new URL('../dist/sources/redis/source.js', import.meta.url))

writeFileSync(target, `export const SOURCES = ${JSON.stringify(SOURCES, undefined, 2)}\n`)
// It described the module that was replaced.
rmSync(`${target}.map`, { force: true })
