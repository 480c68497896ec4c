/** Starts one of each, says which processes they are, and waits to be killed. */
import { startCluster } from '../../support/servers/redis-cluster.js'
import { startSentinel } from '../../support/servers/redis-sentinel.js'
import { startRedis } from '../../support/servers/redis-server.js'

const [single, frozen, { master, replica, sentinels }, cluster] = await Promise.all([
  startRedis(),
  startRedis(),
  startSentinel(),
  startCluster(),
])
frozen.freeze()
const servers = [single, frozen, master, replica, ...sentinels, ...cluster.servers]
process.send?.(servers.map(({ pid, dir }) => ({ pid, dir })))
