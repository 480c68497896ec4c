/** Brings messages into every state, says what the stats are, and stays until it is killed. */
import { Queue, type QueueStats } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'

export interface Left {
  readonly stats: QueueStats
  readonly ids: Readonly<Record<'ready' | 'delayed' | 'claimed' | 'dead', readonly string[]>>
}

const [path = ''] = process.argv.slice(2)
const queue = new Queue<string>('left', { backend: sqliteBackend(path, { durability: 'normal' }), leaseMs: 3_600_000 })
for (let index = 0; index < 300; index += 1) await queue.enqueue(`${index}`, { id: `${index}` })
for (let index = 0; index < 100; index += 1) {
  const delivery = await queue.receive()
  if (index % 4 === 0) await delivery?.ack(index)
  else if (index % 4 === 1) await delivery?.requeue({ delayMs: 3_600_000 })
  else if (index % 4 === 2) await delivery?.deadLetter('at random')
}
const ids = { ready: [] as string[], delayed: [] as string[], claimed: [] as string[], dead: [] as string[] }
for (const state of ['ready', 'delayed', 'claimed'] as const)
  for await (const { id } of queue.peek({ state })) ids[state].push(id)
for await (const { id } of queue.deadLetters) ids.dead.push(id)
process.send?.({ stats: await queue.stats(), ids })
process.on('disconnect', () => process.exit())
