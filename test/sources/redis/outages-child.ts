/** A worker as people write them: it ends in order when it is asked to, and by itself when all is over. */
import { mergeMap, pipe, Queue, run } from 'millrace'
import { redisBackend } from 'millrace/redis'

export type Said = 'working' | 'reconnecting' | { readonly released: number; readonly abandoned: number }

const say = (said: Said) => process.send?.(said)
const queue = new Queue<string>('child', { backend: redisBackend(process.argv[2] as string), leaseMs: 5_000 })
const cancel = new AbortController()
process.once('SIGTERM', () => cancel.abort())

const source = queue.source({ graceMs: 500 })
source.events.subscribe(({ type }) => {
  if (type === 'reconnecting') say('reconnecting')
})
const work = async ({ signal }: { readonly signal: AbortSignal }) => {
  say('working')
  await new Promise((resolve) => signal.addEventListener('abort', resolve))
  throw signal.reason
}
const { released, abandoned } = await run(pipe(source, mergeMap(work, 1)), { signal: cancel.signal })
await queue.close({ graceMs: 0 })
say({ released, abandoned })
process.disconnect?.()
