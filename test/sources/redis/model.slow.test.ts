import fc from 'fast-check'
import { redisBackend } from 'millrace/redis'
import { afterAll, describe, expect, it } from 'vitest'
import { startRedis } from '../../support/servers/redis-server.js'
import { command, retention } from './commands.js'
import { Pair } from './pair.js'

const server = await startRedis()
afterAll(() => server.stop())

let runs = 0

describe('the Redis queue', () => {
  it('answers at every step what the memory queue answers', async () => {
    await fc.assert(
      fc.asyncProperty(
        retention,
        fc.array(command, { minLength: 10, maxLength: 60, size: 'max' }),
        async (first, rest) => {
          runs += 1
          const other = redisBackend(server.url, { hashTag: `run${runs}` })
          const pair = Pair.beside(other)
          try {
            for (const each of [first, ...rest]) await each(pair)
          } finally {
            await Promise.all([pair.memory.close(), other.close()])
          }
        },
      ),
      { numRuns: 200, endOnFailure: false },
    )
    expect(runs).toBeGreaterThan(0)
  })
})
