import { Cluster } from 'ioredis'
import { startCluster } from '../support/servers/redis-cluster.js'
import { redisConformance } from './redis/conformance.js'

const cluster = await startCluster()
const client = new Cluster([...cluster.nodes])

redisConformance('redis cluster', { target: client, client, stop: () => cluster.stop() })
