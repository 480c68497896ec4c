/**
 * The etcd backend: queues on a consensus store, for any number of processes and machines.
 */
import type { Backend } from '../../driver.js'
import { EtcdBackend } from './backend.js'
import { clientFactory, type EtcdTarget } from './etcd3.js'

export type { EtcdOptions, EtcdTarget } from './etcd3.js'

/**
 * A backend that keeps its queues on etcd 3.4 or later, by etcd3. Needs the package `etcd3`.
 *
 * `target` is the options of an etcd3 client (`hosts`, `credentials`, `auth`), with a `prefix` for all keys if need be; or a
 * client, or a namespace of one. A client is only copied: a client of our own is made with its options, and it is neither
 * used nor closed. It is made at first use and let go when the last queue closes.
 *
 * Throws `InvalidOptionError` for a bad target, without any password that it holds. What is wrong with the server shows at
 * first use: `BackendUnavailableError` while it cannot be reached or has no leader; `BackendError` for what it refuses, such
 * as a wrong password, or a change when its space is used up; `StoreVersionError` for a queue that a newer version of this
 * library has written.
 *
 * @example
 * const backend = etcdBackend({ hosts: ['http://10.0.0.1:2379', 'http://10.0.0.2:2379', 'http://10.0.0.3:2379'] })
 * await using orders = new Queue<Order>('orders', { backend })
 */
export function etcdBackend(target: EtcdTarget): Backend {
  return new EtcdBackend(clientFactory(target))
}
