/** `npm run boundaries`: who imports whom, and where time comes from. Prints `file:line rule: message`, exits 1. */
import { fileURLToPath } from 'node:url'
import { checkTree, formatViolation } from './house/check.js'

const { files, violations } = checkTree(fileURLToPath(new URL('..', import.meta.url)))
for (const violation of violations) console.error(formatViolation(violation))
console.log(`boundaries: ${files} files, ${violations.length} violations`)
if (violations.length > 0) process.exitCode = 1
