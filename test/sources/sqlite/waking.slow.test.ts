/** Waking in another process, and what it costs to wait for it. */
import { expect, it } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import type { Idle } from './children/idle.js'
import { backendOn, freshPath, queueOn } from './rig.js'

const idle = await bundled(new URL('./children/idle.ts', import.meta.url))

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number
}

it('S11 a waiting process has what another enqueued within 50 ms, in the median', async () => {
  const path = freshPath()
  const queue = queueOn(backendOn(path), {}, 'idle')
  const child = new Child<Idle>(idle, [path])
  await child.hear()
  const delays: number[] = []
  for (let round = 0; round < 40; round += 1) {
    const sentAt = Date.now()
    await queue.enqueue(`${round}`)
    const came = await child.hear((said) => said.kind === 'came' && said.payload === `${round}`)
    if (came.kind === 'came') delays.push(came.at - sentAt)
    // Not in step with the looks at the file.
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20))
  }
  expect(median(delays)).toBeLessThan(50)
})

it('S11, E3 waiting costs next to nothing, also while others write', async () => {
  const path = freshPath()
  const other = queueOn(backendOn(path), {}, 'other')
  await other.stats()
  const child = new Child<Idle>(idle, [path])
  await child.hear()
  child.tell(2_000)
  const quiet = await child.hear((said) => said.kind === 'cost')
  child.said.length = 0
  child.tell(2_000)
  for (let costs = false; !costs; costs = child.said.length > 0) await other.enqueue('not for you')
  const busy = await child.hear((said) => said.kind === 'cost')
  if (quiet.kind !== 'cost' || busy.kind !== 'cost') throw new Error('not measured')
  // Two hundredths where nothing else runs.
  expect(quiet.cpu).toBeLessThan(0.1)
  expect(busy.cpu).toBeLessThan(0.2)
})
