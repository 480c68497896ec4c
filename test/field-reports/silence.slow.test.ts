import { expect, it } from 'vitest'
import { memoryQueue } from '../support/queues.js'

it('D1 close settles when the backend never answers again', async () => {
  const { queue, backend } = memoryQueue({ leaseMs: 50 })
  await queue.enqueue('a')
  const delivery = await queue.receive()
  backend.inject({ verb: '*', kind: 'drop-request', times: Number.POSITIVE_INFINITY })
  const closing = queue.close({ graceMs: 0 })
  expect(await closing).toMatchObject({ abandoned: 1 })
  expect(await delivery?.ack()).toBe('stale')
})
