/** Starts one of each, says which processes they are, and waits to be killed. */
import { startEtcdCluster } from '../../support/servers/etcd-cluster.js'
import { startEtcd } from '../../support/servers/etcd-server.js'
import { startCluster } from '../../support/servers/redis-cluster.js'
import { startSentinel } from '../../support/servers/redis-sentinel.js'
import { startRedis } from '../../support/servers/redis-server.js'

const [single, frozen, { master, replica, sentinels }, cluster, etcd, etcdCluster] = await Promise.all([
  startRedis(),
  startRedis(),
  startSentinel(),
  startCluster(),
  startEtcd(),
  startEtcdCluster(),
])
frozen.freeze()
const redis = [single, frozen, master, replica, ...sentinels, ...cluster.servers]
const servers = [...redis, etcd, ...etcdCluster.servers]
process.send?.(servers.map(({ pid, dir }) => ({ pid, dir })))
