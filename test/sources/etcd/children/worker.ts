/** `worker.ts HOSTS handle|hold|exit|block LEASE_MS`; to block is to hold, and to keep the process from all else for two leases. */
import { Queue } from 'millrace'
import { etcdBackend } from 'millrace/etcd'
import { work } from '../../../support/worker.js'
import { block } from './block.js'

const [, , hosts = '', what = 'handle', leaseMs = '2000'] = process.argv
const options = { backend: etcdBackend({ hosts: hosts.split(',') }), leaseMs: Number(leaseMs), maxDeliveries: 3 }
const queue = new Queue<string>('shared', options)
await (what === 'block' ? block(queue, Number(leaseMs)) : work(queue, what))
