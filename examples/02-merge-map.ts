/** Bounded concurrency: three lanes, and no more than three messages are ever claimed. */
import { setTimeout } from 'node:timers/promises'
import { mergeMap, pipe, Queue, run } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using images = new Queue<string>('images', { backend: memoryBackend() })
await images.enqueueAll(Array.from({ length: 10 }, (_, index) => ({ payload: `image-${index}.png` })))

let running = 0
let mostRunning = 0
let mostClaimed = 0

async function resize(name: string, signal: AbortSignal): Promise<string> {
  running += 1
  mostRunning = Math.max(mostRunning, running)
  mostClaimed = Math.max(mostClaimed, (await images.stats()).claimed)
  await setTimeout(5, undefined, { signal })
  running -= 1
  return `small-${name}`
}

const flow = pipe(
  images.source({ until: 'empty' }),
  mergeMap((delivery) => resize(delivery.payload, delivery.signal), 3),
)
const { acked } = await run(flow)
console.log(`acked ${acked}, at most ${mostRunning} at once, at most ${mostClaimed} claimed`)

// Prints:
// acked 10, at most 3 at once, at most 3 claimed
