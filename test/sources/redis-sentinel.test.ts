import { Redis } from 'ioredis'
import { Redis as Redis6 } from 'ioredis6'
import { startSentinel } from '../support/servers/redis-sentinel.js'
import { redisConformance } from './redis/conformance.js'

const sentinel = await startSentinel()
// The other major version of the client than the one that is installed under its own name.
const target = new Redis6({ ...sentinel.options, lazyConnect: true } as never)

redisConformance('redis by Sentinel', {
  target,
  client: new Redis(sentinel.options),
  stop: () => sentinel.stop(),
})
