import { Redis } from 'ioredis'
import { Redis as Redis6 } from 'ioredis6'
import { startSentinel } from '../support/servers/redis-sentinel.js'
import { sampled } from '../support/share.js'
import { redisConformance } from './redis/conformance.js'

// What is lost at a failover is another test's concern; a busy machine must not bring one about.
const sentinel = await startSentinel({ downAfterMs: 60_000 })
// The other major version of the client than the one that is installed under its own name.
const target = new Redis6({ ...sentinel.options, lazyConnect: true } as never)

// The other half is run on a Cluster, and all of it on a server by itself.
redisConformance(
  'redis by Sentinel',
  { target, client: new Redis(sentinel.options), stop: () => sentinel.stop() },
  sampled({ first: 0, every: 2 }),
)
