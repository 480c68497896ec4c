import { Redis } from 'ioredis'
import { startRedis } from '../support/servers/redis-server.js'
import { redisConformance } from './redis/conformance.js'

const server = await startRedis()

redisConformance('redis', { target: server.url, client: new Redis(server.url), stop: () => server.stop() })
