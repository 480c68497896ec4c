/** Stopping: one handler gets its work done within the grace, one ends at once, and one message was never touched. */
import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import { mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using mails = new Queue<string>('mails', { backend: memoryBackend() })
await mails.enqueueAll([{ payload: 'stubborn' }, { payload: 'obedient' }, { payload: 'waiting' }])

const shutdown = new AbortController()
process.once('SIGTERM', () => shutdown.abort(new Error('SIGTERM')))

async function send(mail: string, signal: AbortSignal): Promise<void> {
  console.log(`sending ${mail}`)
  if (mail === 'obedient') {
    process.kill(process.pid, 'SIGTERM')
    // Ends with the signal's reason: not a failure, so the message goes back as if it had not been tried.
    await setTimeout(60_000, undefined, { signal })
  } else {
    // Takes the hint to hurry, and gets its work done within the grace.
    await once(signal, 'abort')
    await setTimeout(20)
  }
}

const flow = pipe(
  mails.source(),
  mergeMap((delivery) => send(delivery.payload, delivery.signal), 2),
)
const summary = await run(flow, { signal: shutdown.signal, graceMs: 5_000 })
console.log(summary)
for await (const { payload, attempt } of mails.peek()) console.log(`still queued: ${payload}, attempt ${attempt}`)

// Prints:
// sending stubborn
// sending obedient
// {
//   acked: 1,
//   requeued: 0,
//   deadLettered: 0,
//   lost: 0,
//   released: 1,
//   settledDuringGrace: 1,
//   abandoned: 0
// }
// still queued: obedient, attempt 1
// still queued: waiting, attempt 1
