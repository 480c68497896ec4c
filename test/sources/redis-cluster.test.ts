import { Cluster } from 'ioredis'
import { startCluster } from '../support/servers/redis-cluster.js'
import { sampled } from '../support/share.js'
import { redisConformance } from './redis/conformance.js'

const cluster = await startCluster()
const client = new Cluster([...cluster.nodes])

// The other half is run by Sentinel, and all of it on a server by itself.
redisConformance(
  'redis cluster',
  { target: client, client, stop: () => cluster.stop() },
  sampled({ first: 1, every: 2 }),
)
