/** `npm run test:fast` and its like: vitest with the arguments given, then one line to read: `12 passed, 0 failed`. */
import { runVitest } from './run-vitest.js'
import { formatTally } from './tally.js'

const { ok, tally } = runVitest(process.argv.slice(2))
console.log(formatTally(tally))
process.exitCode = ok ? 0 : 1
