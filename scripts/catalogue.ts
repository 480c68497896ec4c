/** `npm run catalogue`: brings the catalogue of scenarios in docs/testing.md up to date. */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { readCatalogue, withCatalogue } from './house/catalogue.js'

const document = fileURLToPath(new URL('../docs/testing.md', import.meta.url))
const entries = readCatalogue(fileURLToPath(new URL('..', import.meta.url)))
writeFileSync(document, withCatalogue(readFileSync(document, 'utf8'), entries))
console.log(`catalogue: ${new Set(entries.map(({ id }) => id)).size} scenarios in ${entries.length} tests`)
