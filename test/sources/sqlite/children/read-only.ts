/** Asks everything of a queue in a folder that cannot be written, and says what was answered. */
import { join } from 'node:path'
import { MillraceError, Queue } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

const [folder = ''] = process.argv.slice(2)
const queue = new Queue<string>('disk', { backend: sqliteBackend(join(folder, 'queues.db')) })
const asked = [
  queue.enqueue('x'),
  queue.tryReceive(),
  queue.receive({ timeoutMs: 2_000 }),
  queue.stats(),
  queue.size(),
  queue.outcome('a', { timeoutMs: 0 }),
  queue.purge(),
]
const answers = await Promise.allSettled<unknown>(asked)
await queue.close()
process.send?.(
  answers.map((answer) => {
    if (answer.status === 'fulfilled') return `answered ${JSON.stringify(answer.value)}`
    return answer.reason instanceof MillraceError ? answer.reason.code : String(answer.reason)
  }),
)
process.disconnect()
