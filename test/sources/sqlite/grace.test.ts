/** Settlements that are confirmed together, while their consumer is being stopped. */
import { mergeMap, pipe, run } from 'millrace'
import { expect, it } from 'vitest'
import { backendOn, freshPath, queueOn } from './rig.js'

it('counts each of them as settled during the grace', async () => {
  const queue = queueOn(backendOn(freshPath()))
  await queue.enqueueAll(['a', 'b', 'c', 'd'].map((payload) => ({ payload })))
  const stop = new AbortController()
  let started = 0
  const summary = await run(
    pipe(
      queue.source(),
      mergeMap(async ({ signal }) => {
        started += 1
        if (started === 4) stop.abort()
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve))
      }, 4),
    ),
    { signal: stop.signal },
  )
  expect(summary).toMatchObject({ acked: 4, settledDuringGrace: 4, released: 0, abandoned: 0 })
})
