/**
 * `worker.ts HOSTS QUEUE handle|hold|exit|block LEASE_MS MAX_DELIVERIES`; to block is to hold, and to keep the process from
 * all else for two leases.
 */
import { Queue } from 'millrace'
import { etcdBackend } from 'millrace/etcd'
import { work } from '../../../support/worker.js'
import { block } from './block.js'

const [, , hosts = '', name = '', what = '', leaseMs, maxDeliveries] = process.argv
const backend = etcdBackend({ hosts: hosts.split(',') })
const queue = new Queue<string>(name, {
  backend,
  leaseMs: Number(leaseMs),
  maxDeliveries: Number(maxDeliveries),
})
await (what === 'block' ? block(queue, Number(leaseMs)) : work(queue, what))
