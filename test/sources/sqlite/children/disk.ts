/** Works on a disk that is full, and then has room again. Says what was answered meanwhile. */
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MillraceError, Queue, type QueueStats } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

export interface DiskReport {
  /** Errors at the first use of a new file while there is no room at all. */
  readonly atFirst: readonly string[]
  /** What was stored before the disk was full. */
  readonly stored: readonly string[]
  readonly refused: readonly string[]
  /** What the claims on the full disk brought: an id, an error, or nothing. */
  readonly claims: readonly string[]
  readonly settled: readonly string[]
  readonly full: QueueStats | string
  readonly after: QueueStats
  /** All that was handed over once there was room. */
  readonly drained: readonly string[]
  readonly last: QueueStats
}

const [folder = ''] = process.argv.slice(2)
const ballast = join(folder, 'ballast')
const backend = sqliteBackend(join(folder, 'queues.db'), { durability: 'full' })
const queue = new Queue<string>('disk', { backend })

function codeOf(error: unknown): string {
  if (!(error instanceof MillraceError)) throw error
  return error.code
}

/** Takes all the room that is left. */
function fill(): void {
  for (const chunk of [1_048_576, 65_536, 4_096, 1]) {
    try {
      for (;;) writeFileSync(ballast, Buffer.alloc(chunk), { flag: 'a' })
    } catch {}
  }
}

async function codesOf(...asked: Promise<unknown>[]): Promise<string[]> {
  return Promise.all(asked.map((each) => each.then((value) => JSON.stringify(value) ?? 'nothing', codeOf)))
}

fill()
const atFirst = await codesOf(queue.enqueue('x'), queue.tryReceive(), queue.stats())
rmSync(ballast)

// Comes free later: more than the log takes before it is written back.
writeFileSync(ballast, Buffer.alloc(20_000_000))
const stored: string[] = []
const refused: string[] = []
for (let index = 0; refused.length < 40; index += 4) {
  const ids = [0, 1, 2, 3].map((more) => `${index + more}`)
  const enqueue = (id: string) =>
    queue.enqueue('x'.repeat(60_000), { id }).then(
      () => stored.push(id),
      (error) => refused.push(codeOf(error)),
    )
  await Promise.all(ids.map(enqueue))
  // The last of the room, which the small pieces would take long to find.
  if (refused.length > 0) fill()
}

const claims: string[] = []
const settled: string[] = []
for (let round = 0; round < 3; round += 1) {
  try {
    const delivery = await queue.tryReceive()
    claims.push(delivery?.id ?? 'nothing')
    if (delivery) settled.push(await delivery.requeue({ countAttempt: false }).catch(codeOf))
  } catch (error) {
    claims.push(codeOf(error))
  }
}
const full = await queue.stats().catch(codeOf)
rmSync(ballast)

const after = await queue.stats()
await queue.enqueue('there is room', { id: 'new' })
const drained: string[] = []
for await (const delivery of queue.source({ until: 'empty' })) {
  drained.push(delivery.id)
  await delivery.ack()
}
const report: DiskReport = {
  atFirst,
  stored,
  refused,
  claims,
  settled,
  full,
  after,
  drained,
  last: await queue.stats(),
}
await queue.close()
process.send?.(report)
process.disconnect()
