/** A loop over a queue. Leaving it, in any way, gives back what was claimed and not settled. */
import { Queue } from 'millrace'
import { memoryBackend } from 'millrace/memory'

await using greetings = new Queue<string>('greetings', { backend: memoryBackend() })
await greetings.enqueueAll([{ payload: 'hello' }, { payload: 'good day' }, { payload: 'good night' }])

for await (const delivery of greetings.source()) {
  console.log(`handling '${delivery.payload}', attempt ${delivery.attempt}`)
  if (delivery.payload === 'good day') break
  await delivery.ack()
}

// The break gave 'good day' back, in its old place. It was seen, so that counts as an attempt.
for await (const delivery of greetings.source({ until: 'empty' })) {
  console.log(`handling '${delivery.payload}', attempt ${delivery.attempt}`)
  await delivery.ack()
}

// Prints:
// handling 'hello', attempt 1
// handling 'good day', attempt 1
// handling 'good day', attempt 2
// handling 'good night', attempt 1
